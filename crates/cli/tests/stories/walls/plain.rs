//! Arguments that open nothing: what happens inside of a machine, what is shown of it, and how large and
//! how long it may be, up to limits that are the host's.

pub const PLAIN: &str = "
    accel after all append append_newline args audit audit_id background before_seq binary
    build_args changes checkpoint clear_labels clear_name close cmd cols command content
    context_id control count create_new cursor cwd daemon deep depth description dest disk_mib
    dockerfile dockerfile_name echo edits encoding env envs exec executable expect
    failed file files files_out follow format from from_base64 from_cursor gitignore guest_port
    home id idle_seconds image input input_base64 io_mbps iops keep key key_id keys kind labels language
    length limit limits lines literal max_bytes max_chars max_output_bytes mem_mib memory
    memory_mb metadata mode modified_unix_ns more motu name new no_cache no_parents no_timeout nofile
    offset old on_idle output_ring_bytes overwrite password paste patch path path_base64 pattern
    patterns pids_max plain pool_size port profile progress prompt_regex protocol public_key
    quiescence_ms range raw readiness ready_command ready_file ready_http ready_interval_ms ready_tcp
    ready_timeout_seconds recursive restart
    retention rows run sandbox sandbox_id secret_name selector service_name session_id setup
    shared shell shell_id shell_prompt_regex signal signal_name size snapshot snapshot_name
    state stderr_from stdin stdout_from steps strip_ansi tag tail tail_lines target
    terminal text then timeout timeout_sec timeout_seconds to to_base64 tree ttl_seconds tty
    type user vcpu_count vcpus verb vm_id wait_for_idle_ms workdir workspace_id write
";
