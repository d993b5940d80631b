// Package builds makes templates from images for one gateway: New makes a Builds, which
// implements restapi.Builds, and runs each build that was started at this gateway.
//
// A build's object is a TemplateBuild, its bytes are in the template registry (package store),
// and its steps run in a sandbox of a pool that the controller makes for it (package
// reconcilers/builds). This package makes no pool. A template is its builds: those of one name
// in one namespace have one template ID, a hash of the two.
//
// # States
//
//   - Waiting: there are name, tags and sizes; files may be uploaded. Next a gateway writes
//     Building, with its own name, after the recipe.
//   - Building: there is status.base once a builder is needed, and then its pool. Next
//     that gateway writes Starting, with status.image, or Failed; or the controller, Failed.
//   - Starting: there is the template's pool, and the builder's goes. When a pod is Ready, the
//     controller gives the pool its names and writes Ready, else Failed.
//   - Ready: the pool stays until the build is deleted.
//   - Failed: there are a step and a reason, and no pool. The controller deletes it after a day.
//
// Each write tests the object's version, so of two writers one loses. E2B's "building" is
// Building, Starting, and Ready as long as this gateway does not know the new names.
//
// # A build
//
//  1. POST /v3/templates makes the object; its name, a random UUID, is the build ID.
//  2. GET …/files/{hash} looks for the upload's tag, and returns a URL for PUT within an hour: an
//     HMAC with the seed of tokens binds namespace UID, template, hash and end. The PUT streams
//     into the registry, as the only layer of an image with that tag, so any gateway finds it.
//     The client's hash proves nothing: another namespace or template has other tags.
//  3. POST …/builds/{buildID} checks steps, uploads and base, writes the recipe and Building.
//  4. Base: the image for this platform is compared with the patterns and copied into the
//     namespace's repository.
//     The base of fromTemplate is the image that the template's build has as the build starts,
//     by digest and in the same repository; nothing is copied.
//  5. Steps: the gateway takes the image of as many first steps as an earlier build has made (see
//     Reuse). For the others it creates the builder, a sandbox like any other, and adds the user
//     "user" if it is missing. RUN is a shell's command as the user of the time; COPY puts the upload
//     there, and sandboxd unpacks it (package sandboxd/buildstep); ENV, WORKDIR and USER change
//     what the next steps and the result have.
//     After each RUN, and after the last step, what was changed since the layer before becomes a
//     layer (package layer).
//  6. Finalize: the image gets the configuration that the steps leave; Starting has it by digest.
//  7. The controller makes the pool: that image, runtimes: [sandboxd], the start command as
//     command, the ready command as startup probe, sizes as limits.
//
// # Reuse
//
// An image after steps has a tag in the namespace's repository: a hash of the base's digest and of
// all that was put into the builder or run there since. So the same steps on the same base have
// one tag, an upload counts by its content, and no build finds what another namespace has made.
// Gateways alone write these tags; of two builds at once the last has the tag, and both images are
// right. A registry that collects an image takes its tag, and its steps run again; `force` and
// skip_cache have them run whatever the registry has. A build all of whose steps are reused has
// no builder.
//
// # Names
//
// The pools are "build-" and "template-" with the build ID, and have no firstRequest, so no
// prefix of an ID catches them. Names and tags are the pool's annotation sandlane.dev/aliases:
// template ID, name, and "name:tag". The controller adds those of the new pool, then takes them
// from the older one, and then writes Ready: the oldest pool has an alias, so a name moves with
// the second write, and is never nowhere. The older pool stays, with its sandboxes.
//
// Of several builds the one that was given a tag last has it: a gateway that assigns a tag writes
// a time after all that are there. A gateway that removes one takes it from all builds, and last
// from the one that has it. The controller moves the names, and the gateway then answers.
//
// # When a step fails
//
//   - No registry is named: 501.
//   - A step, a name, or the base's pattern is wrong, or an upload is missing: 400, and nothing is
//     written.
//   - An upload is too large, is cut, or its URL is over: 413, 500, 403; no tag.
//   - As many builds of the namespace or of the API key run at this gateway, or are kept, as may:
//     429. Those of all namespaces together wait for each other.
//   - The registry would keep more for the API key than it may (stored.go): 429, at a request and an
//     upload; of a build that runs, Failed at the step that would add it.
//   - The base is not there, for another platform, at a closed address, not whole in its
//     registry, or needs a password: Failed at the step base.
//   - The builder's pool is Degraded for 30 s (no such image, PodSecurity, quota), or has no pod
//     in ten minutes: Failed at the step base, with the pool's reason.
//   - A command exits with another code than 0: Failed, with its number and last lines.
//   - The build takes an hour: Failed at the step that ran.
//   - Archive or push fail, or the template's pod does not get Ready in ten minutes: Failed at the
//     step finalize; the names stay.
//   - The gateway stops: it writes Failed. It dies: the controller does, after two minutes without
//     a heartbeat, and the gateway's own write is refused.
//   - Two builds of one name: both run; the one that is Ready last has the name.
//   - A build is deleted: its pools go by owner reference; its gateway finds no object at its next
//     write, and stops.
//
// The gateway ends the builder whatever happens; its pool, and an end after an hour, do so too.
//
// # Rights
//
// A gateway makes TemplateBuilds, adds the recipe once (admission), and writes their status. The
// controller alone makes pools, with a pod spec of its own, of images by digest of the
// namespace's own repository, which is named by the namespace's UID: a gateway that was taken
// over, or a tenant that may write builds, chooses no other image and no volume, account or
// security setting. Pods have no credentials of the registry; nodes pull with their own or
// --template-pull-secret. A base's credentials stay in memory for that build; values of ENV stand
// in the object and the image, and in no log.
//
// All is off unless --template-registry names a registry, and no image may be a base unless
// --template-bases says so. Bases are dialled with the closed ranges refused, after redirects too;
// a registry that a pattern names with its port may lie there. A base whose manifest names
// addresses of layers is refused, since nodes would read from these.
//
// # Memory
//
// No layer is in memory: uploads, bases and archives are streams. What is, is bounded: the names
// of changed folders (package layer), the logs and recipes of running builds; builds that are
// listed are read eight at a time, or their metadata alone.
//
// # Lacking
//
// Builds that go on at another gateway. Images of deleted builds are the registry's to collect: that
// of `up` does (package local/registry).
package builds
