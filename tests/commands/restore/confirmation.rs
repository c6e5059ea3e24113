//! The confirmation: the operator at a terminal sees the plan, and must confirm it.

use super::{Ended, Fixture, is_restored, overwrite, snapshot_with_old_member};
use crate::support::terminal::{END_OF_INPUT, Terminal};

/// The question of `restore`.
const QUESTION: &str = "Write 1 pools? Only `yes` means yes: ";

/// Runs `restore` at a terminal, and answers its question. Nothing may be written before the answer.
async fn answer_prompt(fixture: &Fixture, file: &str, answer: &str) -> Ended {
    let (mut terminal, mut child) = Terminal::start(fixture.command("restore", &[file]));
    terminal.shows(QUESTION).await;
    fixture.assert_nothing_written().await;
    terminal.types(answer);
    let status = child.wait().await.expect("it is our child");
    Ended { code: status.code(), stdout: terminal.ended().await, stderr: String::new() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn h2_at_a_terminal_the_plan_is_shown_first_and_only_yes_writes() {
    let fixture = Fixture::new(2).await;
    let file = fixture.path("pools.json");
    let pools = snapshot_with_old_member(&fixture, &file).await;
    overwrite(&fixture, &pools[0]).await;
    for answer in ["no\n", "y\n", "YES\n", "\n", END_OF_INPUT] {
        let ended = answer_prompt(&fixture, &file, answer).await;
        assert_eq!(ended.code, Some(1), "{answer:?}: {ended:?}");
        assert!(ended.stdout.contains("not confirmed: nothing was written"), "{answer:?}: {ended:?}");
        fixture.assert_nothing_written().await;
    }

    let ended = answer_prompt(&fixture, &file, "yes\n").await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let (before, after) = ended.stdout.split_once(QUESTION).expect("it was asked");
    let plan = format!("- {}: ", pools[0].id());
    assert!(before.contains("1 pools would be written") && before.contains(&plan), "{ended:?}");
    assert!(after.contains(&format!("{plan}restored")), "{ended:?}");
    assert!(is_restored(&fixture, &pools[0]).await);
    assert_eq!(fixture.puts().len(), 1);
}
