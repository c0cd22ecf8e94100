// What the kernel tells of processes and sockets (Linux).

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// What the kernel tells of processes and sockets (Linux).

// cpuSeconds is the processor time of a process and of its children that it started and that still run, which for a postmaster are its
// backends.
func cpuSeconds(pid int) (float64, error) {
	const ticks = 100 // per second: USER_HZ, the same on every architecture that Go runs on
	files, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return 0, err
	}
	total := 0.0
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // it has ended
		}
		// The name of the program is in brackets and may hold anything.
		head, rest, _ := strings.Cut(string(text), " (")
		fields := strings.Fields(rest[strings.LastIndexByte(rest, ')')+1:]) // from the state on, the third of proc(5)
		if head != strconv.Itoa(pid) && fields[1] != strconv.Itoa(pid) {
			continue
		}
		for _, field := range fields[11:13] { // utime, stime
			n, err := strconv.ParseFloat(field, 64)
			if err != nil {
				return 0, fmt.Errorf("read %s: %w", file, err)
			}
			total += n / ticks
		}
		if head == strconv.Itoa(pid) { // children that ended
			for _, field := range fields[13:15] {
				n, _ := strconv.ParseFloat(field, 64)
				total += n / ticks
			}
		}
	}
	return total, nil
}

// resident is the memory of a process that is in RAM, in bytes.
func resident(pid int) (float64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		return 0, err
	}
	pages, err := strconv.ParseFloat(strings.Fields(string(text))[1], 64)
	return pages * float64(os.Getpagesize()), err
}

// kernelMemory is what the kernel holds in its slabs that cannot be given back, and in the buffers of TCP, in bytes, of the whole machine.
func kernelMemory() (slab, tcp float64, err error) {
	text, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0, 0, err
	}
	_, rest, _ := strings.Cut(string(text), "SUnreclaim:")
	if slab, err = strconv.ParseFloat(strings.Fields(rest)[0], 64); err != nil {
		return 0, 0, err
	}
	if text, err = os.ReadFile("/proc/net/sockstat"); err != nil {
		return 0, 0, err
	}
	_, rest, _ = strings.Cut(string(text), "TCP: ")
	line, _, _ := strings.Cut(rest, "\n")
	_, pages, _ := strings.Cut(line, " mem ")
	tcp, err = strconv.ParseFloat(strings.TrimSpace(pages), 64)
	return slab * 1024, tcp * float64(os.Getpagesize()), err
}
