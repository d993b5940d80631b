package main

import (
	"fmt"
	"syscall"
	"unsafe"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// What a filter reads of struct seccomp_data (linux/seccomp.h).
const (
	callAt  = 0
	abiAt   = 4
	flagsAt = 16 // the low half of the first argument, little endian
)

// clone3 has the same number everywhere.
const callClone3 = 435

// x32Calls is where the calls of the x32 ABI begin, which has x86-64's identity.
const x32Calls = 0x40000000

// abis are those in which a program can make system calls on the machines that the
// node runs on, with the numbers of the calls whose first argument has CLONE_NEWUSER.
var abis = []struct{ id, clone, unshare uint32 }{
	{unix.AUDIT_ARCH_X86_64, 56, 272},
	{unix.AUDIT_ARCH_I386, 120, 310},
	{unix.AUDIT_ARCH_AARCH64, 220, 97},
	{unix.AUDIT_ARCH_ARM, 120, 337},
}

const (
	allow  = unix.SECCOMP_RET_ALLOW
	denied = unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)
	absent = unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS)
)

// userNamespaceFilter refuses to make user namespaces, in which any user has all
// capabilities and reaches parts of the kernel that are root's otherwise. The flags
// of clone3 are in memory, which a filter cannot read, so that call is not there: C
// libraries fall back to clone. Neither are the calls of an ABI that is not listed.
// bubblewrap, rootless containers and Chromium without --no-sandbox fail by it.
func userNamespaceFilter() []bpf.Instruction {
	program := []bpf.Instruction{bpf.LoadAbsolute{Off: abiAt, Size: 4}}
	for _, abi := range abis {
		calls := []bpf.Instruction{
			bpf.LoadAbsolute{Off: callAt, Size: 4},
			bpf.JumpIf{Cond: bpf.JumpGreaterOrEqual, Val: x32Calls, SkipTrue: 6},
			bpf.JumpIf{Cond: bpf.JumpEqual, Val: callClone3, SkipTrue: 5},
			bpf.JumpIf{Cond: bpf.JumpEqual, Val: abi.clone, SkipTrue: 1},
			bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: abi.unshare, SkipTrue: 4},
			bpf.LoadAbsolute{Off: flagsAt, Size: 4},
			bpf.JumpIf{Cond: bpf.JumpBitsNotSet, Val: unix.CLONE_NEWUSER, SkipTrue: 2},
			bpf.RetConstant{Val: denied},
			bpf.RetConstant{Val: absent},
			bpf.RetConstant{Val: allow},
		}
		program = append(program, bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: abi.id, SkipTrue: uint8(len(calls))})
		program = append(program, calls...)
	}
	return append(program, bpf.RetConstant{Val: absent})
}

// refuseUserNamespaces gives this thread, and what it executes, the filter. It needs
// no_new_privs, and a filter can never be taken off.
func refuseUserNamespaces() error {
	raw, err := bpf.Assemble(userNamespaceFilter())
	if err != nil {
		return fmt.Errorf("assemble the filter of system calls: %w", err)
	}
	filter := make([]unix.SockFilter, 0, len(raw))
	for _, i := range raw {
		filter = append(filter, unix.SockFilter{Code: i.Op, Jt: i.Jt, Jf: i.Jf, K: i.K})
	}
	program := &unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	if _, _, errno := syscall.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, uintptr(unsafe.Pointer(program))); errno != 0 {
		return fmt.Errorf("filter system calls: %w", errno)
	}
	return nil
}
