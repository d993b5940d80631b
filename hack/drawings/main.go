// Command drawings renders the drawings of docs/ from their text: each docs/drawings/NAME.d2
// becomes NAME.svg beside it. The same text gives the same bytes.
package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"oss.terrastruct.com/d2/d2graph"
	"oss.terrastruct.com/d2/d2layouts/d2elklayout"
	"oss.terrastruct.com/d2/d2lib"
	"oss.terrastruct.com/d2/d2renderers/d2svg"
	"oss.terrastruct.com/d2/d2themes/d2themescatalog"
	"oss.terrastruct.com/d2/lib/log"
	"oss.terrastruct.com/d2/lib/textmeasure"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: drawings FOLDER")
		os.Exit(2)
	}
	if err := render(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "drawings:", err)
		os.Exit(1)
	}
}

func render(folder string) error {
	texts, err := filepath.Glob(filepath.Join(folder, "*.d2"))
	if err != nil {
		return err
	}
	if len(texts) == 0 {
		return fmt.Errorf("%s has no .d2 files", folder)
	}
	for _, text := range texts {
		if err := renderOne(text); err != nil {
			return fmt.Errorf("%s: %w", text, err)
		}
	}
	return nil
}

func renderOne(text string) error {
	source, err := os.ReadFile(text)
	if err != nil {
		return err
	}
	ruler, err := textmeasure.NewRuler()
	if err != nil {
		return err
	}
	pad, dark := int64(16), d2themescatalog.DarkMauve.ID
	light := d2themescatalog.NeutralGrey.ID
	opts := &d2svg.RenderOpts{Pad: &pad, ThemeID: &light, DarkThemeID: &dark}
	ctx := log.With(context.Background(), slog.New(slog.DiscardHandler))
	diagram, _, err := d2lib.Compile(ctx, string(source), &d2lib.CompileOptions{
		Ruler: ruler,
		LayoutResolver: func(string) (d2graph.LayoutGraph, error) {
			return d2elklayout.DefaultLayout, nil
		},
	}, opts)
	if err != nil {
		return err
	}
	svg, err := d2svg.Render(diagram, opts)
	if err != nil {
		return err
	}
	return os.WriteFile(strings.TrimSuffix(text, ".d2")+".svg", svg, 0o644)
}
