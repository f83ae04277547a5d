// Everyday work of go-redis against the key-value engine: go run . HOST:PORT
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"reflect"
	"sort"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

var ctx = context.Background()

// same ends the program unless the two are equal.
func same(what string, got, expected interface{}) {
	if !reflect.DeepEqual(got, expected) {
		fail(fmt.Sprintf("%s: %#v instead of %#v", what, got, expected))
	}
}

// must gives the value of a reply that is no error.
func must[T any](value T, err error) T {
	if err != nil {
		fail(err.Error())
	}
	return value
}

func refused(what string, err error, text string) {
	if err == nil || !strings.Contains(err.Error(), text) {
		fail(fmt.Sprintf("%s: %v instead of an error with %q", what, err, text))
	}
}

func fail(text string) {
	panic(text)
}

func until(what string, isSo func() bool) {
	for look := 0; look < 2000; look++ {
		if isSo() {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	fail("waited in vain for " + what)
}

func texts(r *redis.Client) {
	same("SET", must(r.Set(ctx, "s", "value", 0).Result()), "OK")
	same("GET", must(r.Get(ctx, "s").Result()), "value")
	same("SETNX", must(r.SetNX(ctx, "s", "other", 0).Result()), false)
	same("nothing", errors.Is(r.Get(ctx, "none").Err(), redis.Nil), true)
	same("INCRBY", must(r.IncrBy(ctx, "n", 41).Result()), int64(41))
	same("INCRBYFLOAT", must(r.IncrByFloat(ctx, "f", 0.5).Result()), 0.5)
	same("MSET", must(r.MSet(ctx, "a", 1, "b", 2).Result()), "OK")
	same("MGET", must(r.MGet(ctx, "a", "b", "none").Result()), []interface{}{"1", "2", nil})
	same("GETEX", must(r.GetEx(ctx, "a", time.Minute).Result()), "1")
	same("TTL", must(r.TTL(ctx, "a").Result()) > 0, true)
	refused("INCR", r.Incr(ctx, "s").Err(), "not an integer")
}

func hashes(r *redis.Client) {
	type Person struct {
		Name string `redis:"name"`
		Born int    `redis:"born"`
	}
	same("HSET", must(r.HSet(ctx, "h", Person{"Ada", 1815}).Result()), int64(2))
	var person Person
	if err := r.HGetAll(ctx, "h").Scan(&person); err != nil {
		fail(err.Error())
	}
	same("HGETALL", person, Person{"Ada", 1815})
	same("HINCRBY", must(r.HIncrBy(ctx, "h", "born", 1).Result()), int64(1816))
	same("HMGET", must(r.HMGet(ctx, "h", "name", "none").Result()), []interface{}{"Ada", nil})
	same("HEXPIRE", must(r.HExpire(ctx, "h", time.Minute, "born").Result()), []int64{1})
}

func lists(r *redis.Client) {
	same("RPUSH", must(r.RPush(ctx, "l", 0, 1, 2, 3).Result()), int64(4))
	same("LRANGE", must(r.LRange(ctx, "l", 1, -1).Result()), []string{"1", "2", "3"})
	same("LMOVE", must(r.LMove(ctx, "l", "m", "LEFT", "RIGHT").Result()), "0")
	waited := make(chan []string)
	go func() { waited <- must(r.BLPop(ctx, 20*time.Second, "none", "later").Result()) }()
	until("the waiting client", func() bool {
		return strings.Contains(must(r.Info(ctx, "clients").Result()), "blocked_clients:1")
	})
	r.RPush(ctx, "later", "job")
	same("BLPOP", <-waited, []string{"later", "job"})
}

func sets(r *redis.Client) {
	r.SAdd(ctx, "x", "a", "b", "c")
	r.SAdd(ctx, "y", "b", "c", "d")
	both := must(r.SInter(ctx, "x", "y").Result())
	sort.Strings(both)
	same("SINTER", both, []string{"b", "c"})
	same("SMISMEMBER", must(r.SMIsMember(ctx, "x", "a", "d").Result()), []bool{true, false})
	same("SDIFFSTORE", must(r.SDiffStore(ctx, "z", "x", "y").Result()), int64(1))
}

func sortedSets(r *redis.Client) {
	r.ZAdd(ctx, "z", redis.Z{Score: 7, Member: "ann"}, redis.Z{Score: 9, Member: "bob"}, redis.Z{Score: 8.5, Member: "cid"})
	expected := []redis.Z{{Score: 7, Member: "ann"}, {Score: 8.5, Member: "cid"}, {Score: 9, Member: "bob"}}
	same("ZRANGE", must(r.ZRangeWithScores(ctx, "z", 0, -1).Result()), expected)
	same("ZINCRBY", must(r.ZIncrBy(ctx, "z", 5, "ann").Result()), 12.0)
	same("ZREVRANK", must(r.ZRevRank(ctx, "z", "ann").Result()), int64(0))
	by := &redis.ZRangeBy{Min: "8", Max: "(9"}
	same("ZRANGEBYSCORE", must(r.ZRangeByScore(ctx, "z", by).Result()), []string{"cid"})
	same("ZPOPMIN", must(r.ZPopMin(ctx, "z").Result()), []redis.Z{{Score: 8.5, Member: "cid"}})
}

func streams(r *redis.Client) {
	entry := &redis.XAddArgs{Stream: "s", ID: "1-1", Values: []interface{}{"n", 1}}
	same("XADD", must(r.XAdd(ctx, entry).Result()), "1-1")
	must(r.XAdd(ctx, &redis.XAddArgs{Stream: "s", Values: map[string]interface{}{"n": 2}}).Result())
	same("XGROUP", must(r.XGroupCreate(ctx, "s", "g", "0").Result()), "OK")
	refused("XGROUP", r.XGroupCreate(ctx, "s", "g", "0").Err(), "BUSYGROUP")
	read := &redis.XReadGroupArgs{Group: "g", Consumer: "me", Streams: []string{"s", ">"}, Count: 1}
	got := must(r.XReadGroup(ctx, read).Result())
	same("XREADGROUP", got[0].Messages[0].Values, map[string]interface{}{"n": "1"})
	pending := must(r.XPending(ctx, "s", "g").Result())
	same("XPENDING", *pending, redis.XPending{Count: 1, Lower: "1-1", Higher: "1-1", Consumers: map[string]int64{"me": 1}})
	claim := &redis.XAutoClaimArgs{Stream: "s", Group: "g", Consumer: "you", Start: "0"}
	claimed, _, err := r.XAutoClaim(ctx, claim).Result()
	same("XAUTOCLAIM", must(claimed, err)[0].ID, "1-1")
	same("XACK", must(r.XAck(ctx, "s", "g", "1-1").Result()), int64(1))
	same("XLEN", must(r.XLen(ctx, "s").Result()), int64(2))
	same("XINFO", must(r.XInfoStream(ctx, "s").Result()).Length, int64(2))
}

func pipelinesAndTransactions(r *redis.Client) {
	pipe := r.Pipeline()
	for number := int64(0); number < 100; number++ {
		pipe.IncrBy(ctx, "sum", number)
	}
	replies := must(pipe.Exec(ctx))
	same("pipeline", replies[99].(*redis.IntCmd).Val(), int64(4950))
	_, err := r.TxPipelined(ctx, func(pipe redis.Pipeliner) error {
		pipe.Set(ctx, "t", 1, 0)
		pipe.Incr(ctx, "t")
		return nil
	})
	same("MULTI", err, nil)
	add := func(meanwhile func()) error {
		return r.Watch(ctx, func(tx *redis.Tx) error {
			value := must(tx.Get(ctx, "t").Int())
			meanwhile()
			_, err := tx.TxPipelined(ctx, func(pipe redis.Pipeliner) error {
				pipe.Set(ctx, "t", value+1, 0)
				return nil
			})
			return err
		}, "t")
	}
	same("WATCH", errors.Is(add(func() { r.Set(ctx, "t", 100, 0) }), redis.TxFailedErr), true)
	same("WATCH", add(func() {}), nil)
	same("GET", must(r.Get(ctx, "t").Int()), 101)
}

func scripts(r *redis.Client) {
	add := redis.NewScript("return redis.call('INCRBY', KEYS[1], ARGV[1])")
	same("script", must(add.Run(ctx, r, []string{"c"}, 5).Int()), 5)
	same("script", must(add.Run(ctx, r, []string{"c"}, 5).Int()), 10)
	got := must(r.Eval(ctx, "return {KEYS[1], ARGV[1], 3}", []string{"k"}, "a").Result())
	same("EVAL", got, []interface{}{"k", "a", int64(3)})
	refused("EVAL", r.Eval(ctx, "return redis.call('LPUSH', KEYS[1], 1)", []string{"c"}).Err(), "WRONGTYPE")
}

func publishAndSubscribe(r *redis.Client) {
	sub := r.Subscribe(ctx, "news")
	defer sub.Close()
	must(sub.Receive(ctx))
	if err := sub.PSubscribe(ctx, "n*"); err != nil {
		fail(err.Error())
	}
	must(sub.Receive(ctx))
	same("PUBLISH", must(r.Publish(ctx, "news", "hello").Result()), int64(2))
	for _, pattern := range []string{"", "n*"} {
		message := must(sub.ReceiveMessage(ctx))
		same("message", []string{message.Pattern, message.Channel, message.Payload}, []string{pattern, "news", "hello"})
	}
	same("PUBSUB", must(r.PubSubNumSub(ctx, "news").Result()), map[string]int64{"news": 1})
}

func scansAndExpiry(r *redis.Client) {
	pipe := r.Pipeline()
	for number := 0; number < 1000; number++ {
		pipe.Set(ctx, fmt.Sprint("scan:", number), number, 0)
		pipe.HSet(ctx, "hash", number, number)
	}
	must(pipe.Exec(ctx))
	seen := map[string]bool{}
	for iter := r.Scan(ctx, 0, "scan:*", 50).Iterator(); iter.Next(ctx); {
		seen[iter.Val()] = true
	}
	same("SCAN", len(seen), 1000)
	fields := 0
	for iter := r.HScan(ctx, "hash", 0, "", 50).Iterator(); iter.Next(ctx); {
		fields++
	}
	same("HSCAN", fields, 2000)
	same("SET PX", must(r.Set(ctx, "soon", 1, 20*time.Millisecond).Result()), "OK")
	until("the end of a key", func() bool { return errors.Is(r.Get(ctx, "soon").Err(), redis.Nil) })
	dump := must(r.Dump(ctx, "hash").Result())
	same("RESTORE", must(r.Restore(ctx, "copy", 0, dump).Result()), "OK")
	same("HLEN", must(r.HLen(ctx, "copy").Result()), int64(1000))
	same("DBSIZE", must(r.DBSize(ctx).Result()), int64(1002))
}

func connections(r *redis.Client) {
	same("PING", must(r.Ping(ctx).Result()), "PONG")
	options := *r.Options()
	options.DB, options.ClientName = 3, "third"
	other := redis.NewClient(&options)
	defer other.Close()
	other.Set(ctx, "only here", 1, 0)
	same("EXISTS", must(r.Exists(ctx, "only here").Result()), int64(0))
	same("CLIENT GETNAME", must(other.ClientGetName(ctx).Result()), "third")
	same("CLIENT LIST", strings.Contains(must(r.ClientList(ctx).Result()), "name=third"), true)
	same("COMMAND", len(must(r.Command(ctx).Result())) > 200, true)
	same("CONFIG GET", len(must(r.ConfigGet(ctx, "maxmemory").Result())), 1)
}

func main() {
	switch os.Args[1] {
	case "cluster":
		cluster(os.Args[2])
		return
	case "rolling":
		rolling(os.Args[2])
		return
	}
	cases := []struct {
		name string
		run  func(*redis.Client)
	}{
		{"strings", texts}, {"hashes", hashes}, {"lists", lists}, {"sets", sets}, {"sortedSets", sortedSets},
		{"streams", streams}, {"pipelinesAndTransactions", pipelinesAndTransactions}, {"scripts", scripts},
		{"publishAndSubscribe", publishAndSubscribe}, {"scansAndExpiry", scansAndExpiry}, {"connections", connections},
	}
	for _, protocol := range []int{2, 3} {
		r := redis.NewClient(&redis.Options{Addr: os.Args[1], Protocol: protocol})
		for _, one := range cases {
			must(r.FlushAll(ctx).Result())
			one.run(r)
			fmt.Printf("go-redis %s, RESP%d: %s\n", redis.Version(), protocol, one.name)
		}
		r.Close()
	}
}
