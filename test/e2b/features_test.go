package e2b

// feature is a line of the table in docs/e2b.md: what users get, and the case
// of that name in both scripts.
type feature struct{ name, text string }

var features = []feature{
	{"create_metadata_envs", "create with metadata, variables and a timeout"},
	{"get_info", "`getInfo`"},
	{"set_timeout", "`setTimeout`, and the end when it is over"},
	{"is_running_kill", "`isRunning`, `kill`"},
	{"pause_resume", "`pause`, and `connect`, which resumes with memory, processes and files"},
	{"pause_twice", "`betaPause`, `pause` of one that is paused, `kill` of a paused one"},
	{"list_state", "`list` by state"},
	{"connect_process", "`connect` from another process"},
	{"list_pages", "`list`, page by page"},
	{"list_metadata", "`list` by metadata"},
	{"metrics", "`getMetrics`"},
	{"command_output", "commands: output, variables, working directory"},
	{"command_exit_code", "commands: exit codes"},
	{"command_stdin", "commands: standard input"},
	{"command_background_kill", "commands in the background: list, kill"},
	{"command_reconnect", "commands: leave, attach again"},
	{"command_timeout", "commands: timeout"},
	{"command_users", "commands as `user` and `root`"},
	{"command_big_output", "commands: 10 MB of output"},
	{"command_parallel", "commands: 50 at once"},
	{"pty", "terminals"},
	{"pty_resize_kill", "terminals: resize, kill"},
	{"files_basic", "files: write, read, list, rename, remove, exists, make a folder, info"},
	{"files_bytes_stream", "files: bytes and streams"},
	{"files_several", "files: several in one call"},
	{"files_watch", "files: watch a folder and those below it"},
	{"host_name", "`getHost` names this gateway"},
	{"access_public", "a port of the sandbox by its own host name"},
	{"access_private", "private ports: the traffic token"},
	{"access_secure", "sandboxd answers the holder of the token alone"},
	{"error_not_found", "errors: not found"},
	{"error_auth", "errors: wrong API key"},
	{"error_rate_limit", "errors: too many requests"},
	{"error_gone", "errors: a sandbox that has ended"},
	{"error_killed", "errors: a sandbox that ends while a command runs"},
	{"error_template", "errors: no such template"},
}
