// Serves custom resources as current Kubernetes does, and all else as an older server behind it.
//
// Debian packages the libraries of a current API server, but not its core kinds. So definitions,
// the kinds that they define, and admission policies are served here, by Kubernetes' own code;
// every other request goes on to `-core`, which also says who is who and who may do what.
package main

import (
	"crypto/tls"
	"flag"
	"log"
	"net"
	"net/http"
	"net/url"
	"os"
	"time"

	"k8s.io/apiextensions-apiserver/pkg/apiserver"
	"k8s.io/apiextensions-apiserver/pkg/cmd/server/options"
	generated "k8s.io/apiextensions-apiserver/pkg/generated/openapi"
	"k8s.io/apiserver/pkg/admission"
	namer "k8s.io/apiserver/pkg/endpoints/openapi"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/util/openapi"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/clientcmd"
)

// patience is how long the older server may take to say who is who and who may do what.
const patience = 2 * time.Minute

func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func main() {
	etcd := flag.String("etcd", "", "address of etcd")
	port := flag.String("port", "", "port to serve everything at")
	core := flag.String("core", "", "address of the older server")
	coreConfig := flag.String("core-kubeconfig", "", "kubeconfig of an administrator of the older server")
	ownConfig := flag.String("kubeconfig", "", "kubeconfig of an administrator for -port")
	certificate := flag.String("certificate", "", "of the server")
	key := flag.String("key", "", "of the certificate")
	folder := flag.String("folder", "", "for certificates between the parts")
	flag.Parse()

	o := options.NewCustomResourceDefinitionsServerOptions(os.Stdout, os.Stderr)
	recommended := o.RecommendedOptions
	recommended.Etcd.StorageConfig.Transport.ServerList = []string{*etcd}
	recommended.Etcd.StorageConfig.Prefix = "/current" // the older server has its own in the same etcd
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(err)
	recommended.SecureServing.Listener = listener
	recommended.SecureServing.BindPort = listener.Addr().(*net.TCPAddr).Port
	recommended.SecureServing.BindAddress = net.IPv4(127, 0, 0, 1)
	recommended.SecureServing.ServerCert.CertDirectory = *folder
	recommended.Authentication.RemoteKubeConfigFile = *coreConfig
	recommended.Authentication.SkipInClusterLookup = true
	recommended.Authorization.RemoteKubeConfigFile = *coreConfig
	recommended.Authorization.AllowCacheTTL = 0 // a right that is taken away is gone at once
	recommended.Authorization.DenyCacheTTL = 0
	// Of 10 seconds each, which the older server does not always keep to on a machine with much
	// else to do: whoever asked would get 401 or 500. A token stays whose it is.
	recommended.Authentication.CacheTTL = 10 * time.Minute
	recommended.Authentication.TokenRequestTimeout = patience
	recommended.Authorization.ClientTimeout = patience
	recommended.CoreAPI.CoreAPIKubeconfigPath = *ownConfig
	// What the older server does not serve, or asks services of the cluster for.
	recommended.Features.EnablePriorityAndFairness = false
	recommended.Admission.DisablePlugins = []string{
		"MutatingAdmissionPolicy", "MutatingAdmissionWebhook", "ValidatingAdmissionWebhook",
	}
	recommended.Admission.Decorators = append(
		recommended.Admission.Decorators, admission.DecoratorFunc(exceptDefinitions))
	must(o.Complete())
	must(o.Validate())
	config, err := o.Config()
	must(err)
	// Without it, definitions are not told in OpenAPI 3 either.
	config.GenericConfig.OpenAPIConfig = genericapiserver.DefaultOpenAPIConfig(
		openapi.GetOpenAPIDefinitionsWithoutDisabledFeatures(generated.GetOpenAPIDefinitions),
		namer.NewDefinitionNamer(apiserver.Scheme, scheme.Scheme))
	server, err := config.Complete().New(genericapiserver.NewEmptyDelegate())
	must(err)

	clients, err := clientcmd.BuildConfigFromFlags("", *ownConfig)
	must(err)
	clients.ContentType = "application/json" // policies are custom resources here
	must(server.GenericAPIServer.AddPostStartHook("policies",
		func(hook genericapiserver.PostStartHookContext) error {
			go servePolicies(hook, hook.LoopbackClientConfig, clients)
			return nil
		}))
	address, err := url.Parse(*core)
	must(err)
	front := newFront(
		&url.URL{Scheme: "https", Host: listener.Addr().String()}, address,
		server.Informers.Apiextensions().V1().CustomResourceDefinitions().Lister())
	go func() {
		must((&http.Server{
			Addr: net.JoinHostPort("127.0.0.1", *port), Handler: front,
			// Connections that are upgraded are HTTP/1.1.
			TLSNextProto: map[string]func(*http.Server, *tls.Conn, http.Handler){},
			ErrorLog:     log.Default(),
		}).ListenAndServeTLS(*certificate, *key))
	}()
	must(server.GenericAPIServer.PrepareRun().RunWithContext(genericapiserver.SetupSignalContext()))
}
