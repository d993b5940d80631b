package envoy

import (
	"crypto/tls"
	"fmt"
	"path/filepath"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/anypb"
)

const (
	// edgeSecret is how Envoy names the certificate of the clients' listener.
	edgeSecret = "edge"
	// edgeSecretFile in RunDir tells Envoy where that certificate is.
	edgeSecretFile = "edge-certificate.json"
)

// Certificate returns the file that an Envoy with a certificate needs beside its
// configuration, and that file's content: Envoy watches only files that it is told of
// this way (SDS). The path is empty for an Envoy without a certificate. It reads
// certificate and key, and refuses a pair that does not fit, with which Envoy would
// start and reset every connection.
func Certificate(o Options) (path string, content []byte, err error) {
	if o.CertFile == "" {
		return "", nil, nil
	}
	o.Complete()
	if err := o.Validate(); err != nil {
		return "", nil, fmt.Errorf("envoy options: %w", err)
	}
	if _, err := tls.LoadX509KeyPair(o.CertFile, o.KeyFile); err != nil {
		return "", nil, fmt.Errorf("envoy's certificate %s: %w", o.CertFile, err)
	}
	file := func(path string) *corev3.DataSource {
		return &corev3.DataSource{Specifier: &corev3.DataSource_Filename{Filename: path}}
	}
	secret := &tlsv3.Secret{Name: edgeSecret, Type: &tlsv3.Secret_TlsCertificate{TlsCertificate: &tlsv3.TlsCertificate{
		CertificateChain: file(o.CertFile), PrivateKey: file(o.KeyFile),
		// A kubelet moves neither file: it moves a link in their folder, to both at once.
		WatchedDirectory: &corev3.WatchedDirectory{Path: filepath.Dir(o.CertFile)},
	}}}
	if content, err = protojson.Marshal(&discoveryv3.DiscoveryResponse{Resources: []*anypb.Any{mustAny(secret)}}); err != nil {
		return "", nil, fmt.Errorf("render envoy's certificate: %w", err)
	}
	return o.edgeSecretPath(), content, nil
}

func (o *Options) edgeSecretPath() string { return filepath.Join(o.RunDir, edgeSecretFile) }

// downstreamTLS shows clients the newest certificate; connections that are open keep theirs.
func downstreamTLS(o *Options) *corev3.TransportSocket {
	return &corev3.TransportSocket{
		Name: "envoy.transport_sockets.tls",
		ConfigType: &corev3.TransportSocket_TypedConfig{TypedConfig: mustAny(&tlsv3.DownstreamTlsContext{
			CommonTlsContext: &tlsv3.CommonTlsContext{
				AlpnProtocols: []string{"h2", "http/1.1"},
				TlsParams:     &tlsv3.TlsParameters{TlsMinimumProtocolVersion: tlsv3.TlsParameters_TLSv1_2},
				TlsCertificateSdsSecretConfigs: []*tlsv3.SdsSecretConfig{{
					Name: edgeSecret,
					SdsConfig: &corev3.ConfigSource{
						ResourceApiVersion: corev3.ApiVersion_V3,
						ConfigSourceSpecifier: &corev3.ConfigSource_PathConfigSource{
							PathConfigSource: &corev3.PathConfigSource{Path: o.edgeSecretPath()},
						},
					},
				}},
			},
		})},
	}
}
