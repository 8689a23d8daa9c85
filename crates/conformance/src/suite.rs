//! The list of checks as tests.

/// Makes one test per check for a runtime.
#[macro_export]
macro_rules! conformance {
    ($runtime:ident, $subject:expr) => {
        mod $runtime {
            $crate::every_check!(group, $subject);
        }
    };
}

/// The same with one machine for all checks of commands, processes and files: for runtimes whose machines take long.
#[macro_export]
macro_rules! conformance_together {
    ($runtime:ident, $subject:expr) => {
        mod $runtime {
            $crate::every_check!(together, $subject);
        }
    };
}

/// Every check, handed to a macro group by group.
#[doc(hidden)]
#[macro_export]
macro_rules! every_check {
    ($with:ident, $subject:expr) => {
        $crate::$with!($subject, lifecycle: prove, [
            create_gives_a_running_sandbox,
            a_sandbox_says_what_it_is,
            an_id_of_the_callers_own_is_kept,
            destroy_leaves_nothing_and_may_be_repeated,
            after_destroy_everything_is_not_found,
            what_never_was_is_not_found,
            health_is_fast_and_changes_nothing,
            a_plan_makes_nothing,
            a_one_shot_leaves_nothing,
            metrics_are_measured,
            ports_are_seen_or_refused,
            what_was_used_is_remembered,
            the_time_to_live_ends_a_sandbox,
            keepalive_postpones_the_end,
            a_machine_that_dies_is_failed_with_a_reason,
        ]);
        $crate::$with!($subject, exec: prove, [
            argv_never_meets_a_shell,
            shell_mode_quotes_its_arguments,
            a_nonzero_exit_is_a_result,
            a_missing_program_is_exit_127,
            stdout_and_stderr_stay_apart,
            variables_and_directory_are_the_callers,
            nothing_of_the_daemon_is_inherited,
            input_streams_and_ends,
            without_input_there_is_none,
            output_arrives_while_the_command_runs,
            a_dropped_session_ends_its_command,
            a_timeout_keeps_the_output_and_ends_the_tree,
            binary_output_is_intact,
            much_output_arrives_whole,
            output_is_cut_at_its_budget,
            many_commands_run_at_once,
            bad_commands_are_invalid,
        ]);
        $crate::$with!($subject, processes: prove, [
            a_background_process_is_listed_and_ends,
            attach_finds_by_pid_and_by_tag,
            attach_continues_at_an_offset,
            two_readers_see_the_same,
            a_signal_ends_the_tree,
            a_tag_in_use_is_a_conflict,
            an_unknown_process_is_not_found,
        ]);
        $crate::$with!($subject, files: prove, [
            what_is_written_is_read,
            parents_are_made_unless_told_not_to,
            commands_and_files_see_the_same_tree,
            stat_tells_kind_size_and_mode,
            a_missing_file_is_not_found,
            a_relative_path_is_invalid,
            ranges_are_exact,
            append_and_create_new,
            of_writers_who_expect_the_same_one_wins,
            an_overwrite_is_all_or_nothing,
            an_abandoned_write_changes_nothing,
            lists_come_in_pages,
            move_keeps_content_and_respects_the_target,
            chmod_changes_the_mode,
            remove_takes_directories_only_when_told,
            glob_finds_and_stops_at_its_limit,
            a_hash_is_of_the_content,
            large_files_survive_the_round_trip,
            trees_survive_the_round_trip,
        ]);
        $crate::$with!($subject, refusals: prove, [
            an_unknown_runtime_is_invalid,
            too_weak_isolation_is_denied,
            a_network_is_given_or_refused,
            limits_out_of_range_are_invalid,
            an_id_in_use_is_a_conflict,
            a_missing_environment_is_told,
            bad_variables_are_invalid,
            every_limit_is_reported,
        ]);
        $crate::$with!($subject, pause: prove, [
            a_paused_sandbox_refuses_and_continues,
            a_paused_process_stands_still,
            a_paused_sandbox_can_be_destroyed,
            what_nobody_uses_is_paused_until_it_is_used,
            what_runs_keeps_a_sandbox_awake,
        ]);
        $crate::$with!($subject, keeping: prove, [
            a_stopped_sandbox_starts_with_its_disks,
            what_is_not_kept_cannot_be_stopped,
            a_killed_machine_leaves_its_disks,
            copies_go_on_by_themselves,
            a_paused_sandbox_is_copied_running,
        ]);
        $crate::$with!($subject, workspaces: prove, [
            a_seed_is_the_baseline_and_comes_back_out,
            a_push_sends_only_what_changed,
            a_stopped_disk_is_read_without_a_machine,
            commands_are_remembered,
            files_are_listed_read_and_written,
            a_patch_is_all_or_nothing,
            a_diff_names_every_kind_of_change,
            a_reset_brings_a_snapshot_back,
            an_undo_goes_back_in_place,
            checkpoints_are_bounded,
            a_stopped_workspace_keeps_what_it_has,
            what_is_known_of_a_workspace_can_be_changed,
            a_service_is_ready_when_its_probe_says_so,
            a_service_that_dies_at_once_says_why,
            a_failed_service_is_started_again_when_asked_to,
            ports_are_published_only_by_policy,
            a_shell_is_there_for_the_next_call,
            deleting_ends_what_runs,
            one_change_of_the_whole_at_a_time,
            a_fork_has_the_files_and_a_life_of_its_own,
        ]);
        $crate::$with!($subject, across {
            keeping: prove_across, [
                a_new_daemon_finds_what_was_stopped,
                a_machine_lost_meanwhile_is_stopped_not_failed,
            ],
            workspaces: prove_across, [
                a_new_daemon_finds_workspaces_and_what_runs_in_them,
                secrets_are_used_and_never_shown,
            ],
        });
        $crate::$with!($subject, restart: prove_across, [
            a_new_daemon_adopts_what_runs,
            output_of_both_lives_is_complete,
            a_paused_sandbox_stays_paused,
            what_was_destroyed_stays_destroyed,
            a_machine_that_died_meanwhile_is_failed,
        ]);
    };
}

/// Runs all checks one after the other, for a runtime that needs something slow to start: `run`
/// gets each check's name and a constructor.
#[macro_export]
macro_rules! conformance_one_by_one {
    ($run:expr) => {
        $crate::every_check!(one_by_one, $run);
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! one_by_one {
    ($run:expr, across { $($group:ident: $prove:ident, [$($check:ident),* $(,)?],)* }) => {
        $($crate::one_by_one!($run, $group: $prove, [$($check),*]);)*
    };
    ($run:expr, $group:ident: $prove:ident, [$($check:ident),* $(,)?]) => {
        $(
            ($run)(
                concat!(stringify!($group), "::", stringify!($check)),
                &|subject| $crate::$prove(Ok(subject), $crate::checks::$group::$check),
            );
        )*
    };
}

/// Makes one test per check of terminals, for a runtime whose machines have terminals and bash.
#[macro_export]
macro_rules! terminals {
    ($name:ident, $subject:expr) => {
        mod $name {
            $crate::group!($crate::subjects::with_bash($subject), terminals: prove, [
                a_run_gives_output_code_directory_and_time,
                silence_does_not_end_a_run,
                two_sessions_work_at_once,
                a_run_can_be_watched_and_interrupted,
                a_password_is_typed_and_never_kept,
                expect_never_finds_the_echo,
                a_program_that_reads_lines_is_talked_to,
                a_signal_reaches_whoever_is_in_front,
                a_new_size_is_everybodys,
                terminate_is_final,
                a_shell_that_has_ended_is_opened_again,
                whoever_goes_away_leaves_the_command_alone,
                somebody_watches_and_takes_over,
                much_output_goes_through_in_order,
                what_is_wrong_is_told,
                a_session_ends_with_its_machine,
                a_shell_without_marks_is_driven_too,
            ]);
            mod across {
                $crate::group!($crate::subjects::with_bash($subject), terminals: prove_across, [
                    a_new_daemon_goes_on_with_the_session,
                    a_session_whose_machine_was_lost_has_ended,
                ]);
            }
        }
    };
}

/// The tests of one group of checks.
#[doc(hidden)]
#[macro_export]
macro_rules! group {
    ($subject:expr, across { $($group:ident: $prove:ident, $checks:tt,)* }) => {
        mod across {
            $($crate::group!($subject, $group: $prove, $checks);)*
        }
    };
    ($subject:expr, $group:ident: $prove:ident, [$($check:ident),* $(,)?]) => {
        mod $group {
            $(
                #[test]
                fn $check() {
                    $crate::$prove($subject, $crate::checks::$group::$check);
                }
            )*
        }
    };
}
