package template

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// step is a step of a build, as the REST API has it.
type step struct {
	Type      string   `json:"type"`
	Args      []string `json:"args"`
	FilesHash string   `json:"filesHash,omitempty"`
}

// recipe is what a Dockerfile says.
type recipe struct {
	image, start string
	steps        []step
}

// The user and folder of a Dockerfile's first steps, and of the template if it names none: those
// of E2B's SDK.
const (
	firstUser, firstDir = "root", "/"
	lastUser, lastDir   = "user", "/home/user"
)

// parse reads a Dockerfile.
func parse(text string) (*recipe, error) {
	r, named := &recipe{}, map[string]bool{}
	for _, l := range lines(text) {
		word, rest, _ := strings.Cut(strings.ReplaceAll(l.text, "\t", " "), " ")
		instruction := strings.ToUpper(word)
		if err := r.add(instruction, strings.TrimSpace(rest)); err != nil {
			return nil, fmt.Errorf("line %d: %s: %w", l.number, instruction, err)
		}
		named[instruction] = true
	}
	if r.image == "" {
		return nil, errors.New("there is no FROM")
	}
	if !named["USER"] {
		r.steps = append(r.steps, step{Type: "USER", Args: []string{lastUser}})
	}
	if !named["WORKDIR"] {
		r.steps = append(r.steps, step{Type: "WORKDIR", Args: []string{lastDir}})
	}
	return r, nil
}

type line struct {
	text   string
	number int
}

// lines joins what a backslash continues, and leaves out comments and empty lines.
func lines(text string) (all []line) {
	open := false
	for i, l := range strings.Split(strings.ReplaceAll(text, "\r\n", "\n"), "\n") {
		trimmed := strings.TrimSpace(l)
		if trimmed == "" || strings.HasPrefix(trimmed, "#") {
			continue
		}
		part, more := strings.CutSuffix(trimmed, "\\")
		if open {
			all[len(all)-1].text += " " + strings.TrimSpace(part)
		} else {
			all = append(all, line{strings.TrimSpace(part), i + 1})
		}
		open = more
	}
	return all
}

func (r *recipe) add(instruction, rest string) error {
	switch {
	case instruction == "FROM" && r.image != "":
		return errors.New("a build has one stage; build the others elsewhere, and copy from the context")
	case instruction != "FROM" && r.image == "":
		return errors.New("is before FROM, where nothing may be")
	case rest == "":
		return errors.New("has no arguments")
	case strings.Contains(rest, "<<") && (instruction == "RUN" || instruction == "COPY"):
		return errors.New("has a here-document, which is not supported; COPY a file")
	}
	switch instruction {
	case "FROM":
		return r.from(rest)
	case "RUN":
		if strings.HasPrefix(rest, "--") {
			return errors.New("has a flag, which is not supported")
		}
		r.steps = append(r.steps, step{Type: "RUN", Args: []string{command(rest)}})
	case "COPY", "ADD":
		return r.copy(rest)
	case "ENV":
		return r.env(rest)
	case "WORKDIR", "USER":
		user, _, _ := strings.Cut(rest, ":") // a step has no group
		if instruction == "WORKDIR" {
			user = rest
		}
		r.steps = append(r.steps, step{Type: instruction, Args: []string{user}})
	case "CMD", "ENTRYPOINT":
		if r.start != "" {
			return errors.New("is a second start command; name one of CMD and ENTRYPOINT")
		}
		r.start = command(rest)
	case "EXPOSE", "LABEL", "MAINTAINER", "STOPSIGNAL": // a sandbox has nothing of it
	default:
		return errors.New("is not supported")
	}
	return nil
}

func (r *recipe) from(rest string) error {
	words := strings.Fields(rest)
	if len(words) != 1 && (len(words) != 3 || !strings.EqualFold(words[1], "AS")) || strings.ContainsAny(words[0], "$") || strings.HasPrefix(words[0], "--") {
		return errors.New("names one image, without flags and variables")
	}
	r.image = words[0]
	r.steps = []step{{Type: "USER", Args: []string{firstUser}}, {Type: "WORKDIR", Args: []string{firstDir}}}
	return nil
}

// command is a shell's command of one, or of a list of words in JSON.
func command(rest string) string {
	var words []string
	if !strings.HasPrefix(rest, "[") || json.Unmarshal([]byte(rest), &words) != nil {
		return rest
	}
	for i, word := range words {
		words[i] = "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
	}
	return strings.Join(words, " ")
}

func (r *recipe) copy(rest string) error {
	user, mode := "", ""
	for strings.HasPrefix(rest, "--") {
		flag, more, _ := strings.Cut(rest, " ")
		name, value, _ := strings.Cut(flag, "=")
		switch name {
		case "--chown":
			user, _, _ = strings.Cut(value, ":")
		case "--chmod":
			mode = value
		default:
			return fmt.Errorf("has the flag %s, which is not supported", name)
		}
		rest = strings.TrimSpace(more)
	}
	var words []string
	if !strings.HasPrefix(rest, "[") || json.Unmarshal([]byte(rest), &words) != nil {
		words = strings.Fields(rest)
	}
	if len(words) < 2 {
		return errors.New("needs a source and a destination")
	}
	to := words[len(words)-1]
	if len(words) > 2 && !strings.HasSuffix(to, "/") {
		return errors.New("has several sources: the destination must end with a slash")
	}
	for _, source := range words[:len(words)-1] {
		if strings.Contains(source, "://") || strings.Contains(source, "$") {
			return fmt.Errorf("%s is no file of the context", source)
		}
		r.steps = append(r.steps, step{Type: "COPY", Args: []string{source, to, user, mode}})
	}
	return nil
}

// env is name=value, in quotes or not, several times, or a name and a value.
func (r *recipe) env(rest string) error {
	words, err := split(rest)
	if err != nil {
		return err
	}
	var args []string
	if !strings.Contains(words[0], "=") {
		name, value, _ := strings.Cut(rest, " ")
		args = []string{name, strings.TrimSpace(value)}
	} else {
		for _, word := range words {
			name, value, found := strings.Cut(word, "=")
			if !found {
				return fmt.Errorf("%s has no value", name)
			}
			args = append(args, name, value)
		}
	}
	r.steps = append(r.steps, step{Type: "ENV", Args: args})
	return nil
}

// split splits words at spaces outside of quotes, and takes the quotes away.
func split(text string) ([]string, error) {
	var words []string
	var word strings.Builder
	quote, inWord := rune(0), false
	escaped := false
	for _, c := range text {
		switch {
		case escaped:
			word.WriteRune(c)
			escaped = false
		case c == '\\' && quote != '\'':
			escaped, inWord = true, true
		case quote != 0 && c == quote:
			quote = 0
		case quote == 0 && (c == '"' || c == '\''):
			quote, inWord = c, true
		case quote == 0 && c == ' ':
			if inWord {
				words = append(words, word.String())
				word.Reset()
			}
			inWord = false
		default:
			word.WriteRune(c)
			inWord = true
		}
	}
	if quote != 0 || escaped {
		return nil, errors.New("has a quote without its end")
	}
	if inWord {
		words = append(words, word.String())
	}
	return slices.Clip(words), nil
}
