// CoreDNS with the plugins that the cluster's DNS uses; all of them would take two minutes more to build.
package main

import (
	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/coremain"

	_ "github.com/coredns/coredns/plugin/bind"
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/kubernetes"
	_ "github.com/coredns/coredns/plugin/ready"
	_ "github.com/coredns/coredns/plugin/template"
)

func main() {
	// In the order in which a question passes them.
	dnsserver.Directives = []string{"bind", "ready", "errors", "template", "kubernetes"}
	coremain.Run()
}
