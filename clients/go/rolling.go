package main

import (
	"bufio"
	"fmt"
	"os"
	"sync"
	"sync/atomic"

	"github.com/redis/go-redis/v9"
)

const (
	rollingWriters = 4
	rollingKeys    = 2000
)

// writer is one goroutine's part of the writes.
type writer struct {
	written int
	// The last number that was acknowledged, by key.
	acknowledged map[string]int
	failed       []error
}

// rolling restarts servers one after another under go-redis as it is: go run . rolling HOST:PORT
//
// Four goroutines write with the client's own settings, and try nothing again. A line from outside says that all servers are back: then
// no write may have failed, and everything that was acknowledged is there.
func rolling(address string) {
	r := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{address}})
	defer r.Close()
	var over atomic.Bool
	var group sync.WaitGroup
	writers := make([]writer, rollingWriters)
	for number := range writers {
		group.Add(1)
		go func(number int) {
			defer group.Done()
			writers[number].write(r, number, &over)
		}(number)
	}
	fmt.Println("ready")
	_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
	over.Store(true)
	group.Wait()
	written, lost, failed := 0, 0, []error{}
	for _, one := range writers {
		written += one.written
		failed = append(failed, one.failed...)
		for key, number := range one.acknowledged {
			found, err := r.Get(ctx, key).Int()
			if err != nil && err != redis.Nil {
				fail(fmt.Sprintf("GET %s: %v", key, err))
			}
			if found < number {
				lost++
			}
		}
	}
	shown := failed
	if len(shown) > 3 {
		shown = shown[:3]
	}
	fmt.Printf("go-redis %s, rolling restart: %d of %d writes failed, %d lost %v\n", redis.Version(), len(failed), written, lost, shown)
	if len(failed) > 0 || lost > 0 {
		os.Exit(1)
	}
}

func (w *writer) write(r *redis.ClusterClient, number int, over *atomic.Bool) {
	w.acknowledged = map[string]int{}
	for !over.Load() {
		w.written++
		key := fmt.Sprintf("go:rolling:%d:%d", number, w.written%rollingKeys)
		if err := r.Set(ctx, key, w.written, 0).Err(); err != nil {
			w.failed = append(w.failed, err)
			continue
		}
		w.acknowledged[key] = w.written
	}
}
