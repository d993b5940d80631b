package report

import (
	"fmt"
	"image/color"
	"path/filepath"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"

	"github.com/sandlane/sandlane/test/result"
)

// bars is one plot: a row for each bar.
type bars struct {
	file, title, unit string
	bars              []bar
}

type bar struct{ label, row string }

// colours are the colours of the bars, by their position.
var colours = []color.Color{
	color.RGBA{R: 0x99, G: 0xa3, B: 0xad, A: 0xff}, color.RGBA{R: 0x4c, G: 0x78, B: 0xa8, A: 0xff}, color.RGBA{R: 0xe4, G: 0x57, B: 0x56, A: 0xff},
	color.RGBA{R: 0x54, G: 0xa2, B: 0x4b, A: 0xff},
}

func figures() []bars {
	through := func(name, figure string) []bar {
		return []bar{
			{"plain Envoy", name + "/plain/" + figure},
			{"do-nothing", name + "/do-nothing/" + figure},
			{"Sandlane", name + "/sandlane/" + figure},
		}
	}
	return []bars{
		{"rps", "Requests through Envoy, one sandbox, 32 connections", "requests/s", through("dataplane/hit", "rps")},
		{"fast", "The same with hits answered inside Envoy", "requests/s", append(through("fastpath/hit", "rps"), bar{"with the module", "fastpath/hit/sandlane-fast/rps"})},
		{"cpu", "CPU time of the server behind ext_proc", "µs a request", through("dataplane/hit", "server-cpu")[1:]},
		{"open", "p99 at half of the do-nothing server's rate (open loop)", "µs", through("dataplane/open", "p99")[1:]},
	}
}

// Plots draws the plots whose rows the result has, as SVG files in dir, and returns the file
// names. Each bar is a median; the line through it is its 95 % interval.
func Plots(r *result.Result, dir, prefix string) ([]string, error) {
	var files []string
	for _, f := range figures() {
		name, err := save(r, f, dir, prefix)
		if err != nil {
			return nil, err
		}
		if name != "" {
			files = append(files, name)
		}
	}
	return files, nil
}

// Picture draws the one plot that says most: all sides where the module was measured, else
// those without it. It returns the file's name; empty if neither was measured.
func Picture(r *result.Result, dir, prefix string) (string, error) {
	all := figures()
	for _, f := range []bars{all[1], all[0]} {
		if name, err := save(r, f, dir, prefix); name != "" || err != nil {
			return name, err
		}
	}
	return "", nil
}

// save writes one plot and returns the file's name; empty if a row is missing.
func save(r *result.Result, f bars, dir, prefix string) (string, error) {
	p, err := draw(r, f)
	if err != nil {
		return "", fmt.Errorf("draw %s: %w", f.file, err)
	}
	if p == nil {
		return "", nil
	}
	name := prefix + "-" + f.file + ".svg"
	if err := p.Save(16*vg.Centimeter, 9*vg.Centimeter, filepath.Join(dir, name)); err != nil {
		return "", fmt.Errorf("draw %s: %w", f.file, err)
	}
	return name, nil
}

// draw returns nil if a row is missing.
func draw(r *result.Result, f bars) (*plot.Plot, error) {
	p := plot.New()
	p.Title.Text, p.Y.Label.Text, p.Y.Min = f.title, f.unit, 0
	var labels []string
	for i, b := range f.bars {
		row := r.Row(b.row)
		if row == nil || len(row.Samples) == 0 {
			return nil, nil
		}
		s := row.Summary()
		chart, err := plotter.NewBarChart(plotter.Values{s.Median}, 2*vg.Centimeter)
		if err != nil {
			return nil, err
		}
		chart.XMin, chart.Color, chart.LineStyle.Width = float64(i), colours[i%len(colours)], 0
		p.Add(chart)
		if s.Known {
			line, err := plotter.NewLine(plotter.XYs{{X: float64(i), Y: s.Low}, {X: float64(i), Y: s.High}})
			if err != nil {
				return nil, err
			}
			p.Add(line)
		}
		labels = append(labels, b.label+"\n"+number(s.Median))
	}
	p.NominalX(labels...)
	p.X.Min, p.X.Max, p.Y.Max = -0.5, float64(len(labels))-0.5, 1.1*p.Y.Max
	p.Title.Padding = 4 * vg.Millimeter
	return p, nil
}
