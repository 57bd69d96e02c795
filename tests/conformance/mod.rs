//! The conformance suite: every scenario runs on the stand-in and on the real CLI, against the same
//! stub, and asserts on what the API received and on the rows that were written. Where the two pinned
//! versions differ the scenario says so.

mod basics;
mod content;
mod cut_tools;
mod failures;
mod tools;

use uuid::Uuid;

use self::basics::*;
use self::content::*;
use self::cut_tools::*;
use self::failures::*;
use self::tools::*;
use crate::support::invocation::World;
use crate::support::subject::Subject;

/// Makes a test of every scenario for every subject: those of the first list run on all of them, those of
/// the second hold for the newest version and the stand-in, which imitates it.
macro_rules! scenarios {
    (every: [$($every:ident),* $(,)?], newest: [$($newest:ident),* $(,)?]) => {
        mod stand_in {
            scenarios!(@tests Some(Subject::StandIn); $($every)* $($newest)*);
        }
        mod real_newest {
            scenarios!(@tests Subject::newest_real(); $($every)* $($newest)*);
        }
        mod real_2_1_199 {
            scenarios!(@tests Subject::real("2.1.199"); $($every)*);
        }
    };
    (@tests $subject:expr; $($name:ident)*) => {
        use super::*;
        $(#[test]
        fn $name() {
            let subject: Option<Subject> = $subject;
            if let Some(subject) = subject {
                super::$name(&World::new(subject));
            }
        })*
    };
}

scenarios! {
    every: [
        says_which_version_it_is, a_new_session_takes_our_id_and_our_uuid,
        a_resumed_session_grows_in_place, a_known_uuid_is_swallowed,
        an_api_error_is_left_out_of_the_next_request, a_killed_turn_is_resumed_clean,
        an_api_error_is_cut_off_by_resuming_before_it, sigterm_ends_with_143,
        a_minimal_candidate_resumes_block_for_block, a_message_of_two_blocks_stays_two_blocks,
        mentions_are_off_by_environment, a_command_in_an_envelope_is_words, a_tool_turn_leaves_its_rows,
        parallel_tools_reach_the_api_in_order, a_kill_inside_a_tool_runs_it_again,
        finished_tools_are_kept_by_a_resume_with_our_words, resuming_at_a_tool_call_loses_its_result,
        finished_tools_are_kept_by_resuming_at_the_last_result,
        the_last_row_of_the_file_decides_the_branch, last_prompt_decides_the_branch,
        transcripts_go_where_the_folder_says, max_turns_end_a_turn,
        a_call_cut_off_is_marked_by_resuming_at_the_last_result,
        a_lone_call_cut_off_is_marked_by_resuming_at_it, results_out_of_order_are_kept_too,
        the_brain_drives_whole_turns, an_interrupted_turn_needs_no_message_to_go_on,
        retries_are_bounded_and_announced, an_unknown_id_is_refused, an_id_in_use_is_refused,
        a_killed_turn_without_resume_gets_a_synthetic_answer, a_bare_clear_is_a_command,
        a_tool_that_is_not_allowed_is_denied, a_torn_tail_is_ignored, partial_messages_are_streamed,
        a_cut_stream_is_asked_for_again, a_refused_connection_is_an_error, two_lines_are_two_turns,
        an_interrupt_keeps_what_was_said, an_interrupt_ends_the_tool_and_leaves_its_result,
        a_message_said_while_a_tool_works_is_absorbed, a_message_said_too_late_is_a_turn_of_its_own,
        streaming_changes_no_request, a_fork_takes_a_new_id_and_the_same_rows, plain_text_works,
    ],
    newest: [
        an_unknown_flag_is_refused, every_api_error_has_its_exit_and_row,
        a_message_after_a_kill_inside_a_tool_tells_of_the_unknown_outcome,
        a_sigterm_ends_the_tool_and_a_sigkill_does_not, an_appended_system_prompt_is_frozen,
    ]
}

fn fresh() -> String {
    Uuid::new_v4().to_string()
}

fn view(world: &World) -> Vec<String> {
    world.stub.last_main().view()
}

fn stays_unsaid(world: &World, texts: &[&str]) {
    let request = world.stub.last_main();
    for text in texts {
        assert_eq!(request.occurrences(text), 0, "{text:?} reached the API: {:#?}", request.view());
    }
}
