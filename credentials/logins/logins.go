// Package logins reads the logins of registries from a file in the form of Docker's
// configuration, such as a mounted Secret of the type kubernetes.io/dockerconfigjson: Keychain
// gives them to go-containerregistry. The gateway logs in to the template registry with it, and
// the local node pulls.
//
// It knows no helper programs, and no other file than the one that it is given. As for Docker, a
// login may name its registry by host or by URL. A path in it is not looked at: of several logins
// for paths of one host, and none for the host, any may be taken.
package logins

import (
	"fmt"
	"os"

	"github.com/docker/cli/cli/config"
	"github.com/docker/cli/cli/config/credentials"
	"github.com/docker/cli/cli/config/types"
	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
)

// Keychain returns the logins of a file, which is read at each use, since it may be renewed;
// without a path it has none. It is safe for concurrent use.
func Keychain(path string) authn.Keychain { return keychain(path) }

type keychain string

// Resolve implements authn.Keychain.
func (k keychain) Resolve(of authn.Resource) (authn.Authenticator, error) {
	if k == "" {
		return authn.Anonymous, nil
	}
	f, err := os.Open(string(k))
	if err != nil {
		return nil, fmt.Errorf("read the logins of registries: %w", err)
	}
	defer func() { _ = f.Close() }() // it was only read
	parsed, err := config.LoadFromReader(f)
	if err != nil {
		return nil, fmt.Errorf("read the logins of registries: %s is no configuration of Docker's", string(k)) // the error may repeat its text
	}
	servers := []string{of.RegistryStr()}
	if servers[0] == name.DefaultRegistry { // Docker Hub, for which Docker and kubectl write its old URL
		servers = []string{authn.DefaultAuthKey, name.DefaultRegistry, "docker.io"}
	}
	file := credentials.NewFileStore(parsed)
	for _, server := range servers {
		login, err := file.Get(server)
		if err != nil {
			return nil, err
		}
		login.ServerAddress = "" // else no login is empty
		if login != (types.AuthConfig{}) {
			return authn.FromConfig(authn.AuthConfig{
				Username: login.Username, Password: login.Password, Auth: login.Auth, IdentityToken: login.IdentityToken, RegistryToken: login.RegistryToken,
			}), nil
		}
	}
	return authn.Anonymous, nil
}
