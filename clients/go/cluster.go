package main

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// cluster is a cluster of key-value engines under go-redis, while it changes: go run . cluster HOST:PORT
//
// After its everyday work it says so with a line, and goes on writing while slots move and nodes fail. A line from outside says that
// the cluster has settled: from then on nothing that was acknowledged may be missing.
func cluster(address string) {
	r := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{address}})
	defer r.Close()
	days(r)
	fmt.Println("ready")
	var isSettled atomic.Bool
	go func() {
		_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
		isSettled.Store(true)
	}()
	written, failed := load(r, &isSettled)
	afterwards(r)
	fmt.Printf("go-redis %s, cluster: %d writes while it changed, %d errors\n", redis.Version(), written, failed)
}

func days(r *redis.ClusterClient) {
	for number := 0; number < 200; number++ {
		key, value := fmt.Sprintf("go:day:%d", number), fmt.Sprint(number)
		same("SET", must(r.Set(ctx, key, value, 0).Result()), "OK")
		same("GET", must(r.Get(ctx, key).Result()), value)
	}
	pipe := r.Pipeline()
	for number := 0; number < 200; number++ {
		pipe.IncrBy(ctx, fmt.Sprintf("go:sum:%d", number%20), int64(number))
	}
	same("a pipeline", len(must(pipe.Exec(ctx))), 200)
	same("MSET", must(r.MSet(ctx, "go:{m}a", 1, "go:{m}b", 2).Result()), "OK")
	same("MGET", must(r.MGet(ctx, "go:{m}a", "go:{m}b").Result()), []interface{}{"1", "2"})
	refused("MSET", r.MSet(ctx, "go:a", 1, "go:b", 2).Err(), "slot")
	same("EVAL", must(r.Eval(ctx, "return redis.call('INCRBY', KEYS[1], ARGV[1])", []string{"go:n"}, 5).Result()), int64(5))
	_, err := r.TxPipelined(ctx, func(pipe redis.Pipeliner) error {
		pipe.Set(ctx, "go:{t}", 1, 0)
		return pipe.Incr(ctx, "go:{t}").Err()
	})
	same("a transaction", err, nil)
	sharded := r.SSubscribe(ctx, "go:shard")
	defer sharded.Close()
	must(sharded.Receive(ctx))
	must(r.SPublish(ctx, "go:shard", "hello").Result())
	same("SPUBLISH", must(sharded.ReceiveMessage(ctx)).Payload, "hello")
}

// load writes until the cluster has settled. Errors are transient: they are counted, and each write is tried again.
func load(r *redis.ClusterClient, isSettled *atomic.Bool) (written int, failed int) {
	for !isSettled.Load() {
		if r.Set(ctx, fmt.Sprintf("go:load:%d", written%2000), written, 0).Err() != nil {
			failed++
			time.Sleep(20 * time.Millisecond)
			continue
		}
		written++
	}
	return written, failed
}

func afterwards(r *redis.ClusterClient) {
	for number := 0; number < 1500; number++ {
		key := fmt.Sprintf("go:after:%d", number)
		// What the client has not learned of the last change yet may fail once more, and not for ever.
		err := errors.New("not tried")
		for look := 0; look < 200 && err != nil; look++ {
			if err = r.Set(ctx, key, number, 0).Err(); err != nil {
				time.Sleep(100 * time.Millisecond)
			}
		}
		same("SET afterwards", err, nil)
	}
	for number := 0; number < 1500; number++ {
		same("GET afterwards", must(r.Get(ctx, fmt.Sprintf("go:after:%d", number)).Int()), number)
	}
	for number := 0; number < 200; number++ {
		same("GET of the first day", must(r.Get(ctx, fmt.Sprintf("go:day:%d", number)).Int()), number)
	}
}
