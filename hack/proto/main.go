// Command proto compiles the repository's .proto files and hands them to the
// protoc plugins that this module pins. It stands in for protoc, which is no
// Go program and could not be pinned by a go.mod. It is no replacement for it: it
// knows the options below and no others.
//
// `make generate` runs it by generate.sh, from the root of the repository:
//
//	proto -I DIR -out DIR -opt OPTION,... -plugin BINARY [-plugin BINARY] FILE...
package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/bufbuild/protocompile"
	"github.com/bufbuild/protocompile/protoutil"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/pluginpb"
)

func main() {
	if err := run(context.Background(), os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "proto:", err)
		os.Exit(1)
	}
}

type list []string

func (l *list) String() string     { return strings.Join(*l, ",") }
func (l *list) Set(s string) error { *l = append(*l, s); return nil }

func run(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("proto", flag.ContinueOnError)
	root := flags.String("I", ".", "folder that file names are relative to")
	out := flags.String("out", ".", "folder that generated files are written below")
	opt := flags.String("opt", "", "options for every plugin")
	var plugins list
	flags.Var(&plugins, "plugin", "protoc plugin to run (may be repeated)")
	if err := flags.Parse(args); err != nil {
		return err
	}

	compiler := protocompile.Compiler{
		Resolver:       protocompile.WithStandardImports(&protocompile.SourceResolver{ImportPaths: []string{*root}}),
		SourceInfoMode: protocompile.SourceInfoStandard,
	}
	files, err := compiler.Compile(ctx, flags.Args()...)
	if err != nil {
		return fmt.Errorf("compiling: %w", err)
	}
	request := &pluginpb.CodeGeneratorRequest{FileToGenerate: flags.Args(), Parameter: opt}
	seen := map[string]bool{}
	for _, f := range files {
		addFile(request, seen, f)
	}
	in, err := proto.Marshal(request)
	if err != nil {
		return fmt.Errorf("encoding the plugin request: %w", err)
	}
	for _, p := range plugins {
		if err := generate(ctx, p, in, *out); err != nil {
			return fmt.Errorf("running %s: %w", filepath.Base(p), err)
		}
	}
	return nil
}

// addFile adds a file after the files that it imports, as plugins want it.
func addFile(request *pluginpb.CodeGeneratorRequest, seen map[string]bool, f protoreflect.FileDescriptor) {
	if seen[f.Path()] {
		return
	}
	seen[f.Path()] = true
	imports := f.Imports()
	for i := range imports.Len() {
		addFile(request, seen, imports.Get(i).FileDescriptor)
	}
	request.ProtoFile = append(request.ProtoFile, protoutil.ProtoFromFileDescriptor(f))
}

// generate runs one plugin over the encoded request and writes what it answers.
func generate(ctx context.Context, plugin string, in []byte, out string) error {
	cmd := exec.CommandContext(ctx, plugin)
	cmd.Stdin, cmd.Stderr = bytes.NewReader(in), os.Stderr
	answer, err := cmd.Output()
	if err != nil {
		return err
	}
	var response pluginpb.CodeGeneratorResponse
	if err := proto.Unmarshal(answer, &response); err != nil {
		return fmt.Errorf("decoding its answer: %w", err)
	}
	if response.Error != nil {
		return fmt.Errorf("it answered: %s", response.GetError())
	}
	for _, f := range response.File {
		path := filepath.Join(out, filepath.FromSlash(f.GetName()))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, []byte(f.GetContent()), 0o644); err != nil {
			return err
		}
	}
	return nil
}
