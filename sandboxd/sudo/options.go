package sudo

import (
	"errors"
	"io"
	"regexp"

	"github.com/spf13/pflag"
)

// usage is what --help prints.
const usage = `usage: sudo [-EHnS] [-u user] [VAR=value]... command [argument]...
       sudo [-EHnS] [-u user] [VAR=value]... -i|-s [command [argument]...]
       sudo -v|-k|-K
Runs a command as root, or as another user of this sandbox. There are no passwords.
  -u, --user USER       run as this user (a name, or # and a number)
  -E, --preserve-env    keep all variables; --preserve-env=A,B keeps these
  -H, --set-home        set HOME to the user's home, also with -E
  -i, --login           run the user's login shell
  -s, --shell           run $SHELL
  -n, -S, -k, -K, -v, -p PROMPT    are accepted and ask for nothing
`

// options are a command line, parsed.
type options struct {
	Command  lines
	Set      lines // VAR=value
	User     string
	Keep     []string // variables that -E keeps; everything keeps all
	Home     bool
	Login    bool
	Shell    bool
	Validate bool // only check whether the client may use sudo
}

// everything is the value of Keep for -E without names.
const everything = "*"

var assignment = regexp.MustCompile(`(?s)^[A-Za-z_][A-Za-z0-9_]*=.*$`)

// errNothing says that there is nothing to run and nothing wrong: -k and -K.
var errNothing = errors.New("nothing to do")

// parse parses the arguments as sudo does: options and variables come in any order
// before the command. It returns pflag.ErrHelp and errNothing too.
func parse(args []string) (options, error) {
	var o options
	var forget, forgetAll bool
	flags := pflag.NewFlagSet("sudo", pflag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.Usage = func() {}
	flags.SetInterspersed(false)
	flags.StringVarP(&o.User, "user", "u", "root", "")
	flags.StringSliceVarP(&o.Keep, "preserve-env", "E", nil, "")
	flags.Lookup("preserve-env").NoOptDefVal = everything
	flags.BoolVarP(&o.Home, "set-home", "H", false, "")
	flags.BoolVarP(&o.Login, "login", "i", false, "")
	flags.BoolVarP(&o.Shell, "shell", "s", false, "")
	flags.BoolVarP(&o.Validate, "validate", "v", false, "")
	flags.BoolVarP(&forget, "reset-timestamp", "k", false, "")
	flags.BoolVarP(&forgetAll, "remove-timestamp", "K", false, "")
	flags.BoolP("non-interactive", "n", false, "")
	flags.BoolP("stdin", "S", false, "")
	flags.StringP("prompt", "p", "", "")
	for {
		if err := flags.Parse(args); err != nil {
			return o, err
		}
		args = flags.Args()
		if flags.ArgsLenAtDash() >= 0 || len(args) == 0 || !assignment.MatchString(args[0]) {
			break
		}
		for len(args) > 0 && assignment.MatchString(args[0]) {
			o.Set, args = append(o.Set, args[0]), args[1:]
		}
	}
	o.Command = args
	switch {
	case o.Login && o.Shell:
		return o, errors.New("give -i or -s, not both")
	case o.User == "":
		return o, errors.New("-u needs the name of a user")
	case len(o.Command) > 0 || o.Login || o.Shell:
		o.Validate = false
	case forget || forgetAll:
		return o, errNothing
	case !o.Validate:
		return o, errors.New("there is no command to run")
	}
	return o, nil
}
