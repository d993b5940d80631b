package main

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/scanner"
	"go/token"
	"os"
	"path/filepath"
	"strings"
)

// changed returns the files below root that a mutant changes, with their new text. An
// error says which edit has no place, or more than one.
func changed(root string, m mutant) (map[string][]byte, error) {
	files := map[string][]byte{}
	for _, e := range m.edits {
		if err := e.apply(root, files); err != nil {
			return nil, fmt.Errorf("%s: %w", e, err)
		}
	}
	return files, nil
}

// apply changes the text of the file that declares e.decl, or what files has of it.
func (e edit) apply(root string, files map[string][]byte) error {
	dir := filepath.Join(root, e.folder)
	names, err := sources(dir)
	if err != nil {
		return err
	}
	found := ""
	var text []byte
	var at span
	for _, name := range names {
		path := filepath.Join(dir, name)
		source, ok := files[path]
		if !ok {
			if source, err = os.ReadFile(path); err != nil {
				return err
			}
		}
		place, ok, err := declaration(name, source, e.decl)
		switch {
		case err != nil:
			return err
		case ok && found != "":
			return fmt.Errorf("declared in %s and in %s", filepath.Base(found), name)
		case ok:
			found, text, at = path, source, place
		}
	}
	if found == "" {
		return errors.New("there is no such declaration")
	}
	inside := string(text[at.from:at.to])
	was, have := tokens(e.was), tokens(inside)
	var places []span
	for i := 0; i+len(was) <= len(have); i++ {
		if same(have[i:i+len(was)], was) {
			places = append(places, span{have[i].from, have[i+len(was)-1].to})
		}
	}
	if len(places) != 1 {
		return fmt.Errorf("this code stands there %d times, not once:\n%s", len(places), e.was)
	}
	p := places[0]
	files[found] = []byte(string(text[:at.from]) + inside[:p.from] + strings.TrimSuffix(e.is, "\n") + inside[p.to:] + string(text[at.to:]))
	return nil
}

// sources are the names of a folder's files of code, tests apart.
func sources(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		name := e.Name()
		switch filepath.Ext(name) {
		case ".go", ".c", ".h":
			if !strings.HasSuffix(name, "_test.go") {
				names = append(names, name)
			}
		}
	}
	return names, nil
}

// span is a part of a text, in bytes.
type span struct{ from, to int }

// declaration finds a declaration in one file; false if it is not there.
func declaration(name string, source []byte, decl string) (span, bool, error) {
	if filepath.Ext(name) != ".go" {
		at, ok := cDeclaration(string(source), decl)
		return at, ok, nil
	}
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, name, source, parser.SkipObjectResolution)
	if err != nil {
		return span{}, false, err
	}
	at := func(n ast.Node) span { return span{set.Position(n.Pos()).Offset, set.Position(n.End()).Offset} }
	for _, d := range file.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if funcName(d) == decl {
				return at(d), true, nil
			}
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				if specIs(d.Tok, spec, decl) {
					return at(spec), true, nil
				}
			}
		}
	}
	return span{}, false, nil
}

// funcName is "name", "T.name" or "(*T).name", without type parameters.
func funcName(d *ast.FuncDecl) string {
	if d.Recv == nil {
		return d.Name.Name
	}
	format := "%s.%s"
	t := d.Recv.List[0].Type
	if star, ok := t.(*ast.StarExpr); ok {
		format, t = "(*%s).%s", star.X
	}
	switch generic := t.(type) {
	case *ast.IndexExpr:
		t = generic.X
	case *ast.IndexListExpr:
		t = generic.X
	}
	if id, ok := t.(*ast.Ident); ok {
		return fmt.Sprintf(format, id.Name, d.Name.Name)
	}
	return ""
}

// specIs reports whether a spec declares "const x", "var x", "type T" or `import "path"`.
func specIs(tok token.Token, spec ast.Spec, decl string) bool {
	kind, name, _ := strings.Cut(decl, " ")
	if kind != tok.String() {
		return false
	}
	switch spec := spec.(type) {
	case *ast.TypeSpec:
		return spec.Name.Name == name
	case *ast.ImportSpec:
		return spec.Path.Value == name
	case *ast.ValueSpec:
		for _, n := range spec.Names {
			if n.Name == name {
				return true
			}
		}
	}
	return false
}

// cDeclaration finds the definition of a function of C, by what stands before its list of
// parameters ("name", or "MACRO(name)"), or of a macro, by "define NAME".
func cDeclaration(source, decl string) (span, bool) {
	all, name := tokens(source), tokens(decl)
	depth := 0
	for i, t := range all {
		switch t.text {
		case "{":
			depth++
			continue
		case "}":
			depth--
			continue
		}
		end := i + len(name)
		if depth > 0 || end >= len(all) || !same(all[i:end], name) {
			continue
		}
		if t.text == "define" {
			line, _, _ := strings.Cut(source[t.from:], "\n")
			return span{t.from, t.from + len(line)}, true
		}
		if all[end].text != "(" {
			continue
		}
		if list := closing(all, end); list > 0 && list+1 < len(all) && all[list+1].text == "{" {
			if body := closing(all, list+1); body > 0 {
				return span{t.from, all[body].to}, true
			}
		}
	}
	return span{}, false
}

// closing is the index of the token that closes the parenthesis or brace at index i; 0 if
// there is none.
func closing(all []lexeme, i int) int {
	depth := 0
	for ; i < len(all); i++ {
		switch all[i].text {
		case "(", "{":
			depth++
		case ")", "}":
			if depth--; depth == 0 {
				return i
			}
		}
	}
	return 0
}

// lexeme is one token and where it stands.
type lexeme struct {
	text string
	span
}

// tokens are the tokens of a piece of Go, or of C, whose tokens are nearly the same, without
// comments and the semicolons that line breaks stand for.
func tokens(text string) []lexeme {
	set := token.NewFileSet()
	file := set.AddFile("", set.Base(), len(text))
	var s scanner.Scanner
	s.Init(file, []byte(text), func(token.Position, string) {}, 0) // C has characters that Go has not
	var all []lexeme
	for {
		pos, tok, literal := s.Scan()
		switch {
		case tok == token.EOF:
			return all
		case tok == token.SEMICOLON && literal != ";":
			continue
		}
		if literal == "" {
			literal = tok.String()
		}
		from := file.Offset(pos)
		all = append(all, lexeme{literal, span{from, from + len(literal)}})
	}
}

func same(a, b []lexeme) bool {
	for i := range a {
		if a[i].text != b[i].text {
			return false
		}
	}
	return true
}
