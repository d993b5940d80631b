// Package freeze stops and continues all processes of a sandbox by signals: everything
// in this process's PID namespace but this process and PID 1.
//
// It is the freezer for where no control group's is to be had. It is not the decision
// whether the sandbox may be frozen, nor when: package sandboxd asks it, for the
// control plane. It stops processes, not the kernel: timers go on, connections stay
// open and the kernel accepts new ones.
//
// # Order
//
// Parents are stopped before their children, and each generation is awaited before the
// next one is signalled. A shell that sees its child stop takes the job for suspended
// and says so; a stopped shell sees nothing, and by the time it goes on its children do
// so already, since children are continued first. What has been stopped cannot start
// processes, so the rounds end when one finds nothing new.
//
// A process that was stopped before is left alone both times: a program in the sandbox
// stopped it.
//
// # States
//
//	running ─Freeze─▶ frozen ─Thaw─▶ running
//	                  frozen ─Refreeze─▶ frozen, whether or not it fails
//	   └─Freeze fails: all that it stopped is continued ─▶ running
//
// mu serialises them. What is stopped can go on by itself: a signal SIGCONT that was
// ordered before, of a timer or a socket, continues it. So Refreeze is called again and
// again. A process that is killed while it is frozen is not continued,
// nor is another that has got its number since: each is known by its start time.
package freeze
