package main

import (
	"context"
	"log"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	extensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	extensions "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/cel/openapi/resolver"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
)

// exceptDefinitions lets definitions be written before policies are served, since by means of
// definitions they are.
func exceptDefinitions(handler admission.Interface, name string) admission.Interface {
	if validator, is := handler.(admission.ValidationInterface); is && name == validating.PluginName {
		return &excepting{validator}
	}
	return handler
}

type excepting struct{ admission.ValidationInterface }

func (e *excepting) Validate(
	ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces,
) error {
	if a.GetResource().Group == "apiextensions.k8s.io" {
		return nil
	}
	return e.ValidationInterface.Validate(ctx, a, o)
}

// servePolicies defines the kinds of admission policies, and then checks the types of what is
// written, as a controller manager does.
func servePolicies(ctx context.Context, own, all *rest.Config) {
	definitions := extensions.NewForConfigOrDie(own).ApiextensionsV1().CustomResourceDefinitions()
	for ctx.Err() == nil {
		ready := true
		for plural, kind := range map[string]string{
			"validatingadmissionpolicies":       "ValidatingAdmissionPolicy",
			"validatingadmissionpolicybindings": "ValidatingAdmissionPolicyBinding",
		} {
			_, err := definitions.Create(ctx, definition(plural, kind), metav1.CreateOptions{})
			if err != nil && !apierrors.IsAlreadyExists(err) {
				log.Print(err)
				ready = false
			}
		}
		if ready {
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	for ; ctx.Err() == nil; time.Sleep(500 * time.Millisecond) {
		if err := checkTypes(ctx, all); err != nil {
			log.Print("types of policies: ", err)
		}
	}
}

func checkTypes(ctx context.Context, all *rest.Config) error {
	client := kubernetes.NewForConfigOrDie(all).AdmissionregistrationV1().ValidatingAdmissionPolicies()
	policies, err := client.List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	var checker *validating.TypeChecker
	for _, policy := range policies.Items {
		if policy.Status.ObservedGeneration == policy.Generation {
			continue
		}
		if checker == nil {
			found := discovery.NewDiscoveryClientForConfigOrDie(all)
			groups, err := restmapper.GetAPIGroupResources(found)
			if err != nil {
				return err
			}
			checker = &validating.TypeChecker{
				SchemaResolver: &resolver.ClientDiscoveryResolver{Discovery: found},
				RestMapper:     restmapper.NewDiscoveryRESTMapper(groups),
			}
		}
		policy.Status.ObservedGeneration = policy.Generation
		policy.Status.TypeChecking = &admissionv1.TypeChecking{
			ExpressionWarnings: checker.Check(&policy),
		}
		if _, err := client.UpdateStatus(ctx, &policy, metav1.UpdateOptions{}); err != nil {
			return err
		}
	}
	return nil
}

func definition(plural, kind string) *extensionsv1.CustomResourceDefinition {
	keep := true
	open := func() extensionsv1.JSONSchemaProps {
		return extensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: &keep}
	}
	filled := func(fields map[string]extensionsv1.JSONSchemaProps) extensionsv1.JSONSchemaProps {
		schema := open()
		schema.Properties = fields
		return schema
	}
	text := func(value string) extensionsv1.JSONSchemaProps {
		return extensionsv1.JSONSchemaProps{
			Type: "string", Default: &extensionsv1.JSON{Raw: []byte(value)},
		}
	}
	selector := open()
	selector.Default = &extensionsv1.JSON{Raw: []byte("{}")}
	rule := filled(map[string]extensionsv1.JSONSchemaProps{"scope": text(`"*"`)})
	match := filled(map[string]extensionsv1.JSONSchemaProps{
		"matchPolicy": text(`"Equivalent"`), "namespaceSelector": selector, "objectSelector": selector,
		"resourceRules": {Type: "array", Items: &extensionsv1.JSONSchemaPropsOrArray{Schema: &rule}},
	})
	spec := filled(map[string]extensionsv1.JSONSchemaProps{"matchConstraints": match})
	if kind == "ValidatingAdmissionPolicy" {
		spec.Properties["failurePolicy"] = text(`"Fail"`)
	}
	schema := filled(map[string]extensionsv1.JSONSchemaProps{"spec": spec, "status": open()})
	const group = "admissionregistration.k8s.io"
	return &extensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{
			Name:        plural + "." + group,
			Annotations: map[string]string{"api-approved.kubernetes.io": "unapproved, for tests"},
		},
		Spec: extensionsv1.CustomResourceDefinitionSpec{
			Group: group,
			Scope: extensionsv1.ClusterScoped,
			Names: extensionsv1.CustomResourceDefinitionNames{
				Plural: plural, Kind: kind, ListKind: kind + "List",
			},
			Versions: []extensionsv1.CustomResourceDefinitionVersion{{
				Name: "v1", Served: true, Storage: true,
				Schema:       &extensionsv1.CustomResourceValidation{OpenAPIV3Schema: &schema},
				Subresources: &extensionsv1.CustomResourceSubresources{Status: &extensionsv1.CustomResourceSubresourceStatus{}},
			}},
		},
	}
}
