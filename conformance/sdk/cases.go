package sdk

// Case is a function of that name in the programs of both languages.
type Case struct {
	Name string
	Text string // what users get
	// Needs is what a backend must have been given for it; "" is nothing. Only this project
	// says how such a case ends.
	Needs string
}

// Cases are all, in the order in which documentation has them.
var Cases = []Case{
	{Name: "create_metadata_envs", Text: "create with metadata, variables and a timeout"},
	{Name: "create_env", Text: "create by the name of an env whose pools are empty", Needs: "an env by-env"},
	{Name: "get_info", Text: "`getInfo`"},
	{Name: "set_timeout", Text: "`setTimeout`, and the end when it is over"},
	{Name: "is_running_kill", Text: "`isRunning`, `kill`"},
	{Name: "pause_resume", Text: "`pause`, and `connect`, which resumes with memory, processes and files"},
	{Name: "pause_twice", Text: "`betaPause`, `pause` of one that is paused, `kill` of a paused one"},
	{Name: "pause_files", Text: "`pause` without memory, and `connect`, which restores files and variables"},
	{Name: "snapshots", Text: "`createSnapshot`, `listSnapshots`, `deleteSnapshot`, create with a snapshot: files"},
	{Name: "auto_pause_resume", Text: "`lifecycle`: pause at the timeout, and resume by the next request"},
	{Name: "auto_pause_files", Text: "`lifecycle`: pause without memory at the timeout, and `connect`"},
	{Name: "list_state", Text: "`list` by state"},
	{Name: "connect_process", Text: "`connect` from another process"},
	{Name: "list_pages", Text: "`list`, page by page"},
	{Name: "list_metadata", Text: "`list` by metadata"},
	{Name: "metrics", Text: "`getMetrics`"},
	{Name: "command_output", Text: "commands: output, variables, working directory"},
	{Name: "command_exit_code", Text: "commands: exit codes"},
	{Name: "command_stdin", Text: "commands: standard input"},
	{Name: "command_background_kill", Text: "commands in the background: list, kill"},
	{Name: "command_reconnect", Text: "commands: leave, attach again"},
	{Name: "command_timeout", Text: "commands: timeout"},
	{Name: "command_users", Text: "commands as `user` and `root`"},
	{Name: "command_big_output", Text: "commands: 10 MB of output"},
	{Name: "command_parallel", Text: "commands: 50 at once"},
	{Name: "pty", Text: "terminals"},
	{Name: "pty_resize_kill", Text: "terminals: resize, kill"},
	{Name: "files_basic", Text: "files: write, read, list, rename, remove, exists, make a folder, info"},
	{Name: "files_bytes_stream", Text: "files: bytes and streams"},
	{Name: "files_several", Text: "files: several in one call"},
	{Name: "files_watch", Text: "files: watch a folder and those below it"},
	{Name: "host_name", Text: "`getHost` names this gateway", Needs: "the domain of its sandboxes"},
	{Name: "access_public", Text: "a port of the sandbox by its own host name"},
	{Name: "access_private", Text: "private ports: the traffic token"},
	{Name: "access_secure", Text: "sandboxd answers the holder of the token alone"},
	{Name: "error_not_found", Text: "errors: not found"},
	{Name: "error_auth", Text: "errors: wrong API key"},
	{Name: "error_rate_limit", Text: "errors: too many requests", Needs: "a second address of the client"},
	{Name: "error_gone", Text: "errors: a sandbox that has ended"},
	{Name: "error_killed", Text: "errors: a sandbox that ends while a command runs"},
	{Name: "error_template", Text: "errors: no such template"},
}
