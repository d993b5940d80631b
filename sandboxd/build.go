package sandboxd

import (
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"github.com/sandlane/sandlane/sandboxd/buildstep"
)

// buildErrand is what the gateway has this program do in the pod of a template's builder.
type buildErrand struct {
	user   string // to add
	folder string // to make
	unpack string // the archive
	files  buildstep.Files
	owner  string
	mode   string
}

func (b *buildErrand) flags(flags *flag.FlagSet) {
	flags.StringVar(&b.user, "add-user", "", "add a user of this name with a home, unless there is one, and exit")
	flags.StringVar(&b.folder, "make-dir", "", "make this folder, which --owner gets unless it is there, and exit")
	flags.StringVar(&b.unpack, "unpack", "", "unpack this archive of a COPY step, remove it, and exit")
	flags.StringVar(&b.files.Source, "from", ".", "with --unpack: the step's source")
	flags.StringVar(&b.files.Destination, "to", "", "with --unpack: the step's destination; below the working directory unless it is absolute")
	flags.StringVar(&b.owner, "owner", "root", "with --unpack and --make-dir: the user, perhaps with a colon and a group, that owns the files")
	flags.StringVar(&b.mode, "mode", "", "with --unpack: the mode of all files, in octal")
}

func (b *buildErrand) asked() bool { return b.user != "" || b.folder != "" || b.unpack != "" }

func (b *buildErrand) run() error {
	if b.user != "" {
		if err := buildstep.AddUser("/etc", "/home", b.user); err != nil {
			return fmt.Errorf("add the user %s: %w", b.user, err)
		}
	}
	if b.folder != "" {
		uid, gid, err := buildstep.Owner("/etc", b.owner)
		if err == nil {
			err = buildstep.MakeFolder(b.folder, uid, gid)
		}
		if err != nil {
			return fmt.Errorf("make the folder %s: %w", b.folder, err)
		}
	}
	if b.unpack == "" {
		return nil
	}
	err := b.copy()
	return errors.Join(err, os.Remove(b.unpack))
}

func (b *buildErrand) copy() (err error) {
	f := b.files
	if f.Destination == "" {
		return errors.New("COPY has no destination")
	}
	if !filepath.IsAbs(f.Destination) {
		dir, err := os.Getwd()
		if err != nil {
			return err
		}
		f.Destination = dir + "/" + f.Destination
	}
	if b.mode != "" {
		mode, err := strconv.ParseUint(b.mode, 8, 12)
		if err != nil {
			return fmt.Errorf("the mode %q is not one", b.mode)
		}
		f.Mode = fs.FileMode(mode) & fs.ModePerm
	}
	if f.UID, f.GID, err = buildstep.Owner("/etc", b.owner); err != nil {
		return err
	}
	archive, err := os.Open(b.unpack)
	if err != nil {
		return err
	}
	defer func() { _ = archive.Close() }()
	return buildstep.Copy(archive, f)
}
