package helm

import (
	"fmt"
	"os"
	"testing"
)

// nameServer is the address of CoreDNS's Service.
const nameServer = "10.96.0.10"

// coreDNS is a cluster's CoreDNS as kubeadm installs it, but that its program is a file of
// the node's and no image. Its format has that file, and what it asks for names of the internet.
const coreDNS = `
apiVersion: v1
kind: ServiceAccount
metadata: {name: coredns, namespace: kube-system}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: system:coredns}
rules:
- {apiGroups: [""], resources: [endpoints, services, pods, namespaces], verbs: [list, watch]}
- {apiGroups: [discovery.k8s.io], resources: [endpointslices], verbs: [list, watch]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: system:coredns}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: system:coredns}
subjects: [{kind: ServiceAccount, name: coredns, namespace: kube-system}]
---
apiVersion: v1
kind: ConfigMap
metadata: {name: coredns, namespace: kube-system}
data:
  Corefile: |
    .:53 {
        errors
        ready
        kubernetes cluster.local in-addr.arpa ip6.arpa {
            pods insecure
            fallthrough in-addr.arpa ip6.arpa
            ttl 30
        }
        forward . %[2]s
        cache 30
        loop
    }
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: coredns, namespace: kube-system, labels: {k8s-app: kube-dns}}
spec:
  selector: {matchLabels: {k8s-app: kube-dns}}
  template:
    metadata: {labels: {k8s-app: kube-dns}}
    spec:
      serviceAccountName: coredns
      dnsPolicy: Default
      containers:
      - name: coredns
        image: sandlane-test-base:test
        imagePullPolicy: IfNotPresent
        command: [/coredns, -conf, /etc/coredns/Corefile]
        securityContext: {runAsUser: 0}
        readinessProbe: {httpGet: {path: /ready, port: 8181}, periodSeconds: 1}
        volumeMounts:
        - {name: program, mountPath: /coredns, readOnly: true}
        - {name: config, mountPath: /etc/coredns, readOnly: true}
      volumes:
      - {name: program, hostPath: {path: %[1]s, type: File}}
      - {name: config, configMap: {name: coredns}}
---
apiVersion: v1
kind: Service
metadata: {name: kube-dns, namespace: kube-system, labels: {k8s-app: kube-dns}}
spec:
  clusterIP: ` + nameServer + `
  selector: {k8s-app: kube-dns}
  ports:
  - {name: dns, port: 53, protocol: UDP}
  - {name: dns-tcp, port: 53}
`

// names installs CoreDNS, which asks the internet's name server for what is not the cluster's.
func (c *cluster) names(t *testing.T) {
	t.Helper()
	c.apply(t, fmt.Sprintf(coreDNS, os.Getenv("NODE_BIN")+"/coredns", internetAddress))
	c.kubectl(t, "-n", "kube-system", "rollout", "status", "deployment/coredns", "--timeout=120s")
}
