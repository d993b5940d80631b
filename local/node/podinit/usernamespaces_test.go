package main

import (
	"encoding/binary"
	"testing"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// A user namespace is refused in every ABI, and clone and unshare without one are
// not, which threads and child processes need.
func TestUserNamespaceFilter(t *testing.T) {
	vm, err := bpf.NewVM(userNamespaceFilter())
	if err != nil {
		t.Fatal(err)
	}
	const thread = unix.CLONE_VM | unix.CLONE_FS | unix.CLONE_FILES | unix.CLONE_SIGHAND | unix.CLONE_THREAD
	for _, c := range []struct {
		name             string
		abi, call, flags uint32
		want             uint32
	}{
		{"x86-64 clone", unix.AUDIT_ARCH_X86_64, 56, unix.CLONE_NEWUSER | unix.CLONE_NEWNS, denied},
		{"x86-64 thread", unix.AUDIT_ARCH_X86_64, 56, thread, allow},
		{"x86-64 unshare", unix.AUDIT_ARCH_X86_64, 272, unix.CLONE_NEWUSER, denied},
		{"x86-64 unshare of files", unix.AUDIT_ARCH_X86_64, 272, unix.CLONE_FILES, allow},
		{"x86-64 clone3", unix.AUDIT_ARCH_X86_64, 435, 0, absent},
		{"x86-64 read", unix.AUDIT_ARCH_X86_64, 0, unix.CLONE_NEWUSER, allow},
		{"x86-64 call with i386's number", unix.AUDIT_ARCH_X86_64, 310, unix.CLONE_NEWUSER, allow},
		{"x32 clone", unix.AUDIT_ARCH_X86_64, x32Calls | 56, unix.CLONE_NEWUSER, absent},
		{"i386 clone", unix.AUDIT_ARCH_I386, 120, unix.CLONE_NEWUSER, denied},
		{"i386 unshare", unix.AUDIT_ARCH_I386, 310, unix.CLONE_NEWUSER, denied},
		{"i386 clone3", unix.AUDIT_ARCH_I386, 435, 0, absent},
		{"i386 thread", unix.AUDIT_ARCH_I386, 120, thread, allow},
		{"arm64 clone", unix.AUDIT_ARCH_AARCH64, 220, unix.CLONE_NEWUSER, denied},
		{"arm64 unshare", unix.AUDIT_ARCH_AARCH64, 97, unix.CLONE_NEWUSER, denied},
		{"arm64 clone3", unix.AUDIT_ARCH_AARCH64, 435, 0, absent},
		{"arm64 thread", unix.AUDIT_ARCH_AARCH64, 220, thread, allow},
		{"arm clone", unix.AUDIT_ARCH_ARM, 120, unix.CLONE_NEWUSER, denied},
		{"arm unshare", unix.AUDIT_ARCH_ARM, 337, unix.CLONE_NEWUSER, denied},
		{"another ABI", unix.AUDIT_ARCH_S390X, 1, 0, absent},
	} {
		data := make([]byte, 64) // the machine that runs the program loads big endian
		binary.BigEndian.PutUint32(data[callAt:], c.call)
		binary.BigEndian.PutUint32(data[abiAt:], c.abi)
		binary.BigEndian.PutUint32(data[flagsAt:], c.flags)
		got, err := vm.Run(data)
		if err != nil {
			t.Fatal(err)
		}
		if uint32(got) != c.want {
			t.Errorf("%s: %#x, want %#x", c.name, got, c.want)
		}
	}
}
