// A cluster of key-value engines under valkey-go, while it changes: go run . HOST:PORT
//
// After its everyday work it says so with a line, and goes on writing while slots move and nodes fail. A line from outside says that
// the cluster has settled: from then on nothing that was acknowledged may be missing.
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"reflect"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/valkey-io/valkey-go"
)

var ctx = context.Background()

// same ends the program unless the two are equal.
func same(what string, got, expected interface{}) {
	if !reflect.DeepEqual(got, expected) {
		panic(fmt.Sprintf("%s: %#v instead of %#v", what, got, expected))
	}
}

// must gives the value of a reply that is no error.
func must[T any](value T, err error) T {
	if err != nil {
		panic(err.Error())
	}
	return value
}

func set(r valkey.Client, key, value string) error {
	return r.Do(ctx, r.B().Set().Key(key).Value(value).Build()).Error()
}

func get(r valkey.Client, key string) string {
	return must(r.Do(ctx, r.B().Get().Key(key).Build()).ToString())
}

func days(r valkey.Client) {
	for number := 0; number < 200; number++ {
		key, value := fmt.Sprintf("valkey-go:day:%d", number), strconv.Itoa(number)
		same("SET", set(r, key, value), nil)
		same("GET", get(r, key), value)
	}
	sums := make(valkey.Commands, 0, 200)
	for number := int64(0); number < 200; number++ {
		sums = append(sums, r.B().Incrby().Key(fmt.Sprintf("valkey-go:sum:%d", number%20)).Increment(number).Build())
	}
	// It sends to each node what is its own, as a pipeline.
	same("a pipeline", must(r.DoMulti(ctx, sums...)[199].AsInt64()), int64(1090))
	many, keys := map[string]string{}, []string{}
	for number := 0; number < 100; number++ {
		keys = append(keys, fmt.Sprintf("valkey-go:many:%d", number))
		many[keys[number]] = strconv.Itoa(number)
	}
	for _, err := range valkey.MSet(r, ctx, many) {
		same("MSET of many slots", err, nil)
	}
	for key, value := range must(valkey.MGet(r, ctx, keys)) {
		same("MGET of many slots", must(value.ToString()), many[key])
	}
	mset := r.B().Mset().KeyValue().KeyValue("valkey-go:{m}a", "1").KeyValue("valkey-go:{m}b", "2").Build()
	same("MSET", r.Do(ctx, mset).Error(), nil)
	mget := r.B().Mget().Key("valkey-go:{m}a", "valkey-go:{m}b").Build()
	same("MGET", must(r.Do(ctx, mget).AsStrSlice()), []string{"1", "2"})
	add := valkey.NewLuaScript("return redis.call('INCRBY', KEYS[1], ARGV[1])")
	same("a script", must(add.Exec(ctx, r, []string{"valkey-go:n"}, []string{"5"}).AsInt64()), int64(5))
	transaction(r)
	cached(r)
	published(r)
}

func transaction(r valkey.Client) {
	key := "valkey-go:{t}"
	same("a transaction", r.Dedicated(func(one valkey.DedicatedClient) error {
		if err := one.Do(ctx, one.B().Watch().Key(key).Build()).Error(); err != nil {
			return err
		}
		replies := one.DoMulti(ctx, one.B().Multi().Build(), one.B().Set().Key(key).Value("1").Build(),
			one.B().Incr().Key(key).Build(), one.B().Exec().Build())
		both := must(replies[3].ToArray())
		same("EXEC", must(both[1].AsInt64()), int64(2))
		return nil
	}), nil)
}

// cached reads from the client's own memory, and what somebody else has written once it was told.
func cached(r valkey.Client) {
	key := "valkey-go:cached"
	read := func() valkey.ValkeyResult { return r.DoCache(ctx, r.B().Get().Key(key).Cache(), time.Minute) }
	same("SET", set(r, key, "1"), nil)
	same("GET", must(read().ToString()), "1")
	same("a value of its own", read().IsCacheHit(), true)
	same("SET", set(r, key, "2"), nil)
	for look := 0; must(read().ToString()) != "2"; look++ {
		same("told of another value", look < 2000, true)
		time.Sleep(10 * time.Millisecond)
	}
}

func published(r valkey.Client) {
	heard, done := make(chan string, 1), make(chan error, 1)
	listens, end := context.WithCancel(ctx)
	go func() {
		done <- r.Receive(listens, r.B().Ssubscribe().Channel("valkey-go:shard").Build(), func(message valkey.PubSubMessage) {
			heard <- message.Message
		})
	}()
	publish := func() int64 {
		return must(r.Do(ctx, r.B().Spublish().Channel("valkey-go:shard").Message("hello").Build()).AsInt64())
	}
	for look := 0; publish() == 0; look++ {
		same("somebody listens", look < 2000, true)
		time.Sleep(10 * time.Millisecond)
	}
	same("SPUBLISH", <-heard, "hello")
	end()
	same("the end of a subscription", errors.Is(<-done, context.Canceled), true)
}

// load writes until the cluster has settled. Errors are transient: they are counted, and each write is tried again.
func load(r valkey.Client, isSettled *atomic.Bool) (written int, longest time.Duration, failed map[string]int) {
	failed = map[string]int{}
	last := time.Now()
	for !isSettled.Load() {
		if err := set(r, fmt.Sprintf("valkey-go:load:%d", written%2000), strconv.Itoa(written)); err != nil {
			failed[strings.SplitN(err.Error(), " ", 2)[0]]++
			time.Sleep(20 * time.Millisecond)
			continue
		}
		written++
		longest = max(longest, time.Since(last))
		last = time.Now()
	}
	return written, max(longest, time.Since(last)), failed
}

func afterwards(r valkey.Client) {
	for number := 0; number < 1500; number++ {
		// What the client has not learned of the last change yet may fail once more, and not for ever.
		err := errors.New("not tried")
		for look := 0; look < 200 && err != nil; look++ {
			if err = set(r, fmt.Sprintf("valkey-go:after:%d", number), strconv.Itoa(number)); err != nil {
				time.Sleep(100 * time.Millisecond)
			}
		}
		same("SET afterwards", err, nil)
	}
	for number := 0; number < 1500; number++ {
		same("GET afterwards", get(r, fmt.Sprintf("valkey-go:after:%d", number)), strconv.Itoa(number))
	}
	for number := 0; number < 200; number++ {
		same("GET of the first day", get(r, fmt.Sprintf("valkey-go:day:%d", number)), strconv.Itoa(number))
	}
}

func main() {
	r := must(valkey.NewClient(valkey.ClientOption{InitAddress: []string{os.Args[1]}}))
	defer r.Close()
	days(r)
	fmt.Println("ready")
	var isSettled atomic.Bool
	go func() {
		_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
		isSettled.Store(true)
	}()
	written, longest, failed := load(r, &isSettled)
	afterwards(r)
	said := fmt.Sprintf("valkey-go %s, cluster: %d writes while it changed", valkey.LibVer, written)
	fmt.Printf("%s, %.1f s without one, errors %v\n", said, longest.Seconds(), failed)
}
