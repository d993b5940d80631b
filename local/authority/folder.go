package authority

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// Names of the files in an authority's folder.
const (
	certFile = "ca.crt"
	keyFile  = "ca.key"
)

// CertFile is where an authority in dir has the certificate that clients trust.
func CertFile(dir string) string { return filepath.Join(dir, certFile) }

// ForeignError says that a folder holds something else than an authority of ours.
type ForeignError struct {
	Dir string
	Why string
}

func (e *ForeignError) Error() string {
	return fmt.Sprintf("%s is not as `sandlane up --tls` made it (%s): move it away, and the next start makes a new certificate authority", e.Dir, e.Why)
}

// Ensure returns the authority for a domain that dir holds, and makes it where
// there is none. fresh says that clients must learn to trust a new certificate.
// It must not run twice at a time for one folder.
func Ensure(dir, domain string, now time.Time) (a *Authority, fresh bool, err error) {
	if err := removeBeside(dir); err != nil {
		return nil, false, err
	}
	a, err = read(dir, domain)
	if err != nil {
		return nil, false, err
	}
	if a != nil && a.lasts(now) {
		return a, false, nil
	}
	if a, err = newAuthority(domain, now); err != nil {
		return nil, false, err
	}
	if err := replace(dir, a); err != nil {
		return nil, false, fmt.Errorf("keep the certificate authority: %w", err)
	}
	return a, true, nil
}

// read returns the authority in dir, nil if there is no dir.
func read(dir, domain string) (*Authority, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the certificate authority: %w", err)
	}
	for _, e := range entries {
		if e.Name() != certFile && e.Name() != keyFile {
			return nil, &ForeignError{dir, "it holds " + e.Name()}
		}
	}
	if len(entries) < 2 {
		return nil, &ForeignError{dir, "it lacks " + certFile + " or " + keyFile}
	}
	st, err := os.Lstat(filepath.Join(dir, keyFile))
	if err != nil {
		return nil, fmt.Errorf("read the certificate authority: %w", err)
	}
	if !st.Mode().IsRegular() || st.Mode().Perm()&0o077 != 0 {
		return nil, &ForeignError{dir, "others can read " + keyFile}
	}
	cert, err := os.ReadFile(filepath.Join(dir, certFile))
	if err != nil {
		return nil, fmt.Errorf("read the certificate authority: %w", err)
	}
	key, err := os.ReadFile(filepath.Join(dir, keyFile))
	if err != nil {
		return nil, fmt.Errorf("read the certificate authority: %w", err)
	}
	a, err := decode(domain, cert, key)
	if err != nil {
		return nil, &ForeignError{dir, err.Error()}
	}
	return a, nil
}

// replace puts a where dir is. read has found that nothing foreign is there.
func replace(dir string, a *Authority) error {
	cert, key, err := a.PEM()
	if err != nil {
		return err
	}
	fresh := beside(dir, "new")
	if err := os.MkdirAll(fresh, 0o700); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(fresh, keyFile), key, 0o600); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(fresh, certFile), cert, 0o644); err != nil {
		return err
	}
	if err := os.Rename(dir, beside(dir, "old")); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.Rename(fresh, dir); err != nil {
		return err
	}
	return removeBeside(dir)
}

// removeBeside removes what a replace that was cut short left.
func removeBeside(dir string) error {
	if err := errors.Join(os.RemoveAll(beside(dir, "new")), os.RemoveAll(beside(dir, "old"))); err != nil {
		return fmt.Errorf("remove what a start that was cut short left: %w", err)
	}
	return nil
}

// beside is a name that no domain has: none begins with a dot.
func beside(dir, what string) string {
	return filepath.Join(filepath.Dir(dir), "."+what+"-"+filepath.Base(dir))
}
