// What is laid over the measured programs: profiles and memory at a loopback address.

package main

import (
	"encoding/json"
	"net"
	"net/http"
	_ "net/http/pprof"
	"os"
	"runtime"
	"runtime/debug"
)

// The benchmark also lays this file over the programs that are measured (go build -overlay): with BENCH_PROBE=host:port a process serves
// its profiles there, and at /memory what it holds after its garbage is gone.
func init() {
	addr := os.Getenv("BENCH_PROBE")
	if addr == "" {
		return
	}
	mux := http.NewServeMux()
	mux.Handle("/debug/pprof/", http.DefaultServeMux)
	mux.HandleFunc("/memory", func(w http.ResponseWriter, _ *http.Request) {
		debug.FreeOSMemory()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		_ = json.NewEncoder(w).Encode(map[string]uint64{"heap": m.HeapAlloc, "stack": m.StackInuse, "goroutines": uint64(runtime.NumGoroutine())})
	})
	l, err := net.Listen("tcp", addr)
	if err != nil {
		panic(err)
	}
	go func() { _ = http.Serve(l, mux) }() // ends with the process
}
