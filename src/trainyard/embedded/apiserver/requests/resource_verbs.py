"""What each HTTP verb does with a collection or an object."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import orjson

from trainyard.embedded import tenants
from trainyard.embedded.api_errors import StatusCause, bad_request, unsupported_media_type
from trainyard.embedded.apiserver.auth import authorization
from trainyard.embedded.apiserver.auth.authorization import Authorizer
from trainyard.embedded.apiserver.http.http_messages import Request, Response, Stream
from trainyard.embedded.apiserver.patch import patch_formats
from trainyard.embedded.apiserver.requests import (
    delete_options,
    list_selectors,
    object_admission,
    object_identity,
    request_body,
    response_encoding,
    write_options,
)
from trainyard.embedded.apiserver.requests.object_admission import FieldValidation
from trainyard.embedded.apiserver.requests.program_output import OutputFilter
from trainyard.embedded.apiserver.requests.representation import negotiate_representation
from trainyard.embedded.apiserver.requests.request_target import Target
from trainyard.embedded.apiserver.requests.watch_stream import Watch
from trainyard.embedded.cluster_objects import Deletion
from trainyard.embedded.object_metadata import is_released, spec_differs
from trainyard.embedded.registry import Record, Registry
from trainyard.embedded.storage.journal import Entry, Object, encoded
from trainyard.kube.errors import NotFound
from trainyard.kube.resources import FIELD_MANAGER, NAMESPACES
from trainyard.machine.users import NOBODY_ELSE, AllowList
from trainyard.schema.dataclass import dataclass

Change = Callable[[Object], Object]

_MERGE: Mapping[str, Callable[[Any, Any], Any]] = {
    patch_formats.JSON_PATCH: patch_formats.json_patch,
    patch_formats.MERGE_PATCH: patch_formats.merge_patch,
    patch_formats.STRATEGIC_MERGE_PATCH: patch_formats.strategic_merge_patch,
}


@dataclass(frozen=True, slots=True)
class Verbs:
    """Create, read, update, delete, list, watch and patch, with admission."""

    registry: Registry
    authorizer: Authorizer
    output_filter: OutputFilter
    allowed: AllowList = NOBODY_ELSE
    """Who besides its owner uses the cluster."""

    def get(self, request: Request, target: Target) -> Response:
        """Get one object."""
        obj = self.registry.get(*target.place)
        if (hide := self._hiding(request, target)) is not None:
            obj = hide(obj)
        return response_encoding.object_response(request, target.served, target.served.to_view(obj))

    def collection(self, request: Request, target: Target) -> Response:
        """List objects, by selectors and in pages where asked."""
        revision = response_encoding.list_revision(request, self.registry.revision)
        predicate = self._predicate(request, target)
        name = list_selectors.selected_name(request.query.get("fieldSelector", ""))
        if revision == self.registry.revision:
            entries = self._entries(target, name)
        else:
            entries = self.registry.entries_at(target.storage, revision, target.namespace)
        if predicate is not None:
            entries = [entry for entry in entries if predicate(entry.object)]
        metadata: Object = {"resourceVersion": str(revision)}
        entries = response_encoding.page(request, entries, metadata)
        hide = self._hiding(request, target)
        if target.served.view_of or hide is not None:
            objects = (entry.object if hide is None else hide(entry.object) for entry in entries)
            shown = [target.served.to_view(obj) for obj in objects]
            entries = [Entry(obj, orjson.dumps(obj), 0) for obj in shown]
        return response_encoding.list_response(request, target.served, entries, metadata)

    def watch(self, request: Request, target: Target) -> Stream:
        """Watch a collection."""
        predicate, hide = self._predicate(request, target), self._hiding(request, target)
        return Watch(self.registry, target, predicate, request, hide).response()

    async def create(self, request: Request, target: Target) -> Response:
        """Create an object."""
        write_options.check_write(request, "CreateOptions")
        obj, validation = _body(request, target)
        obj, warnings = self._admit(request, target, obj, validation)
        record = _record(request, target)
        if record is None:
            obj["metadata"].pop("managedFields", None)
        made = await self.registry.create(
            target.storage, obj, dry_run=write_options.is_dry_run(request), record=record
        )
        return self._write_response(request, target, made, warnings, status=201)

    async def replace(self, request: Request, target: Target) -> Response:
        """Replace an object or its status (PUT)."""
        write_options.check_write(request, "UpdateOptions")
        body, validation = _body(request, target)
        served = target.served
        version = body["metadata"].get("resourceVersion")
        unversioned = served.needs_version and version in (None, "", "0")

        def change(_: Object) -> Object:
            if unversioned:
                text = "Invalid value: must be specified for an update"
                raise served.refused(body, StatusCause("metadata.resourceVersion", text))
            return body

        try:
            return await self._update(request, target, change, validation)
        except NotFound:
            if not served.created_by_update or target.subresource:
                raise
        return await self.create(request, target)

    async def patch(self, request: Request, target: Target) -> Response:
        """Patch an object or its status."""
        content_type = request.media_type
        if content_type == patch_formats.APPLY_PATCH:
            return await self._apply(request, target)
        write_options.check_write(request, "PatchOptions")
        merge = _MERGE.get(content_type)
        if merge is None or (merge is patch_formats.strategic_merge_patch and target.served.custom):
            supported = [
                patch_formats.JSON_PATCH,
                patch_formats.MERGE_PATCH,
                patch_formats.APPLY_PATCH,
            ]
            raise unsupported_media_type(content_type, supported)
        patch = request_body.parse_json(request.body)
        notes = request_body.duplicate_keys(request.body, patch)
        if merge is patch_formats.json_patch:
            notes = [
                f"json patch {note}" for note in (*patch_formats.unknown_fields(patch), *notes)
            ]
        validation = FieldValidation.from_request(request, notes)

        def change(copy: Object) -> Object:
            try:
                changed = merge(copy, patch)
            except (TypeError, AttributeError, KeyError, ValueError) as error:
                raise bad_request(f"the patch does not fit the object: {error}") from error
            return object_identity.checked_patch(
                target, changed, lenient=merge is not patch_formats.json_patch
            )

        return await self._update(request, target, change, validation)

    async def delete(self, request: Request, target: Target) -> Response:
        """Delete one object."""
        how = _deletion(request)
        obj = await self.registry.delete(*target.place, how)
        marked = "deletionTimestamp" in obj["metadata"]
        has_finalizers = marked and not is_released(target.served, obj)
        if has_finalizers or target.served.returns_deleted:
            return response_encoding.object_response(
                request, target.served, target.served.to_view(obj)
            )
        return response_encoding.success_status(target.served, obj)

    async def delete_collection(self, request: Request, target: Target) -> Response:
        """Delete all objects that the selectors choose."""
        how = _deletion(request)
        response_encoding.limit(request)
        predicate = self._predicate(request, target)
        gone = []
        for entry in self._entries(target, None):
            if predicate is None or predicate(entry.object):
                metadata = entry.object["metadata"]
                place = (target.storage, metadata.get("namespace", ""), metadata["name"])
                try:
                    obj = await self.registry.delete(*place, how)
                except NotFound:
                    continue
                gone.append(Entry(obj, encoded(obj), 0))
                gone[-1].release_object()
        metadata = {"resourceVersion": str(self.registry.revision)}
        return response_encoding.list_response(request, target.served, gone, metadata)

    async def scale(self, request: Request, target: Target) -> Response:
        """Read the scale subresource, or write it whole (PUT) or by a patch."""
        served = target.served
        if request.method == "GET":
            return response_encoding.json_response(
                200, served.to_scale(self.registry.get(*target.place))
            )
        is_patch = request.method == "PATCH"
        write_options.check_write(request, "PatchOptions" if is_patch else "UpdateOptions")
        body = request_body.parse_json(request.body)
        content_type = request.media_type
        merge = _MERGE.get(content_type) if is_patch else object_identity.scale_replacer(target)
        if merge is None or merge is patch_formats.strategic_merge_patch:
            raise unsupported_media_type(
                content_type, [patch_formats.JSON_PATCH, patch_formats.MERGE_PATCH]
            )

        def change(copy: Object) -> Object:
            wanted = merge(served.to_scale(copy), body)
            scale = object_admission.decode_as(wanted, "Scale", is_patch=is_patch)
            return served.from_scale(copy, scale)

        plain = Target(served, target.namespace, target.name, "")
        obj, warnings = await self._change(
            request,
            plain,
            change,
            FieldValidation.from_request(request, []),
            _record(request, target),
        )
        return response_encoding.json_response(200, served.to_scale(obj), warnings)

    async def part(self, request: Request, target: Target) -> Response:
        """Read or write a subresource that shows the whole object and changes a part of it."""
        negotiate_representation(request)
        if request.method == "GET":
            return self.get(request, target)
        return await (self.replace if request.method == "PUT" else self.patch)(request, target)

    async def finalize(self, request: Request, target: Target) -> Response:
        """Write the finalizers of a namespace."""
        body, _ = request_body.body_object(request, target.served)
        spec = object_admission.decode_as(body, "Namespace").get("spec") or {}

        def change(copy: Object) -> Object:
            copy["spec"] = {"finalizers": spec.get("finalizers") or []}
            return copy

        obj = await self.registry.update(*target.place, change, subresource="finalize")
        return response_encoding.object_response(request, target.served, obj)

    async def _update(
        self,
        request: Request,
        target: Target,
        change: Change,
        validation: FieldValidation,
        record: Record | None = None,
    ) -> Response:
        record = record or _record(request, target)
        obj, warnings = await self._change(request, target, change, validation, record)
        return self._write_response(request, target, obj, warnings)

    def _write_response(
        self,
        request: Request,
        target: Target,
        obj: Object,
        warnings: Sequence[str],
        status: int = 200,
    ) -> Response:
        """The answer to a write: the object that was stored, or would be without dry run."""
        shown = target.served.to_view(obj)
        stored = self.registry.json_of(target.storage, obj) if shown is obj else None
        return response_encoding.object_response(
            request, target.served, shown, status=status, warnings=warnings, stored=stored
        )

    async def _change(
        self,
        request: Request,
        target: Target,
        change: Change,
        validation: FieldValidation,
        record: Record | None,
    ) -> tuple[Object, list[str]]:
        warnings: list[str] = []
        status_only = target.subresource == "status"

        def admitted(copy: Object) -> Object:
            old: Object = self.registry.peek(*target.place)
            new = change(copy)
            object_identity.check_kept(target, new, old, is_patch=request.method == "PATCH")
            known = old["metadata"].get("managedFields")
            if known is not None and new["metadata"].get("managedFields") == known:
                del new["metadata"]["managedFields"]  # long, and nothing to be judged
            obj, notes = object_admission.admit_update(
                target.served, new, old, validation, status_only
            )
            if not status_only:
                target.served.check_references(obj, old, self.registry.list)
                if spec_differs(obj, old):
                    self._check_tenant(target, obj)
            warnings.extend(notes)
            return obj

        obj = await self.registry.update(
            *target.place,
            admitted,
            subresource=target.subresource,
            dry_run=write_options.is_dry_run(request),
            record=record,
        )
        return obj, warnings

    async def _apply(self, request: Request, target: Target) -> Response:
        from trainyard.embedded.apiserver.patch import field_managers

        manager = request.query.get("fieldManager", "")
        if not manager:
            text = "Required value: is required for apply patch"
            write_options.refuse_if_any(
                "PatchOptions", [StatusCause("fieldManager", text, "FieldValueRequired")]
            )
        write_options.check_write(request, "PatchOptions", applies=True)
        wanted, notes = request_body.parse_yaml(request.body)
        if not isinstance(wanted, dict):
            raise bad_request("the body of the request is not an object")
        if not wanted.get("apiVersion") or not wanted.get("kind"):
            raise bad_request("what is applied must say its apiVersion and kind")
        object_identity.check_kind(target, wanted, applies=True)
        object_identity.place(target, wanted)
        if wanted["metadata"].get("managedFields") is not None:
            raise bad_request("metadata.managedFields must be nil")
        wanted = object_admission.check_applied(target.served, wanted)
        applied = field_managers.Apply(
            wanted, manager, target.served, request.flag("force"), target.subresource
        )
        validation = FieldValidation.from_request(request, notes)
        try:
            self.registry.peek(*target.place)
        except NotFound:
            if target.subresource:
                raise
            obj, warnings = self._admit(request, target, applied.created(), validation)
            made = await self.registry.create(
                target.storage,
                obj,
                dry_run=write_options.is_dry_run(request),
                record=applied.record,
            )
            return self._write_response(request, target, made, warnings, status=201)
        return await self._update(request, target, applied.merged, validation, applied.record)

    def _admit(
        self, request: Request, target: Target, obj: Object, validation: FieldValidation
    ) -> tuple[Object, list[str]]:
        """The new object as it is to be stored, and warnings."""
        obj, warnings = object_admission.admit_new(target.served, obj, validation)
        target.served.check_references(obj, None, self.registry.list)
        self._check_tenant(target, obj)
        if target.served.name == NAMESPACES.full_name:
            authorization.mark_owner(request.identity, obj, self.allowed)
        return obj, warnings

    def _check_tenant(self, target: Target, obj: Object) -> None:
        """Refuse what the owner of the namespace may not have (decision 89)."""
        tenant = tenants.tenant_of(self.registry, obj["metadata"].get("namespace") or "")
        if tenant is not None and (causes := tenants.forbidden_fields(obj, tenant)):
            raise target.served.refused(obj, *causes)

    def _hiding(self, request: Request, target: Target) -> Change | None:
        """What to do to objects that are shown to this user; None: show them as they are."""
        identity = request.identity
        if identity.is_admin or not target.served.resource.namespaced:
            return None

        def hide(obj: Object) -> Object:
            if self.authorizer.may_read_logs(identity, obj["metadata"]["namespace"]):
                return obj
            return self.output_filter.hide(target.storage, obj)

        return hide

    def _predicate(self, request: Request, target: Target) -> list_selectors.Predicate | None:
        labels = list_selectors.label_predicate(request.query.get("labelSelector", ""))
        fields = list_selectors.field_predicate(
            request.query.get("fieldSelector", ""), target.served
        )
        if target.name:  # the old way to watch one object: …/pods/name?watch=1
            name = target.name
            fields = list_selectors.both(fields, lambda obj: obj["metadata"]["name"] == name)
        predicate = list_selectors.both(labels, fields)
        if predicate is None or not target.served.view_of:
            return predicate
        inner = predicate
        return lambda obj: inner(target.served.to_view(obj))

    def _entries(self, target: Target, name: str | None) -> Sequence[Entry]:
        if name is None or (target.served.resource.namespaced and target.namespace is None):
            return self.registry.entries(target.storage, target.namespace)
        try:
            return [self.registry.entry(target.storage, target.namespace or "", name)]
        except NotFound:
            return []


def _body(request: Request, target: Target) -> tuple[Object, FieldValidation]:
    obj, notes = request_body.body_object(request, target.served)
    object_identity.check_kind(target, obj)
    object_identity.place(target, obj)
    return target.served.from_view(obj), FieldValidation.from_request(request, notes)


def _record(request: Request, target: Target) -> Record | None:
    """How the write is recorded in `managedFields`; None: not at all (decision 332)."""
    from trainyard.embedded.apiserver.patch import field_managers

    manager = write_options.manager(request)
    if manager == FIELD_MANAGER and (request.method == "POST" or target.subresource == "status"):
        return None
    return field_managers.Update(manager, target.served, target.subresource).record


def _deletion(request: Request) -> Deletion:
    write_options.refuse_if_any("DeleteOptions", write_options.dry_run_causes(request.queries))
    return delete_options.parse_options(
        request_body.body_object(request)[0] if request.body else {}, request.query
    )
