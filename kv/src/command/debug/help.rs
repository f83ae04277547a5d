//! What `DEBUG HELP` replies.

use crate::command::call::Call;
use crate::command::help;
use crate::error::Error;

pub(super) fn write(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let lines = [
        ("CHANGE-REPL-ID", "Change the replication IDs of the instance."),
        ("CONFIG-REWRITE-FORCE-ALL", "Like CONFIG REWRITE but writes all configuration options."),
        ("DIGEST", "Output a hex signature representing the current DB content."),
        ("DIGEST-VALUE <key> [<key> ...]", "Output a hex signature of the values of all the specified keys."),
        ("DICT-RESIZING <0|1>", "Taken, without effect: tables grow step by step."),
        ("ERROR <string>", "Return a RESP protocol error with <string> as message."),
        ("HASHTABLE-CAN-ABORT-SHRINK <0|1>", "Taken, without effect: tables do not shrink as a whole."),
        ("HTSTATS <dbid> [full]", "Return hash table statistics of the specified database."),
        ("HTSTATS-KEY <key> [full]", "Like HTSTATS but for the hash table stored at <key>'s value."),
        ("LISTPACK <key>", "Write low level info about the listpack encoding of <key> to the log."),
        ("LOADAOF", "Reload the AOF."),
        ("LOG <message>", "Write <message> to the server log."),
        ("OBJECT <key> [fast]", "Show low level info about `key` and associated value."),
        ("PAUSE-CRON <0|1>", "Stop periodic cron job processing."),
        (
            "POPULATE <count> [<prefix>] [<size>]",
            "Create <count> string keys named <prefix>:<num>, by default key:<num>.",
        ),
        ("PROTOCOL <type>", "Reply with a test value of the specified type."),
        ("QUICKLIST <key> [<0|1>]", "Write low level info about the quicklist encoding of <key> to the log."),
        ("QUICKLIST-PACKED-THRESHOLD <size>", "Taken, without effect: list-max-listpack-size decides alone."),
        ("RELOAD [option ...]", "Write all keys down and read them again. Options are MERGE and NOFLUSH."),
        ("REPLYBUFFER <PEAK-RESET-TIME|RESIZING> <value>", "Taken, without effect."),
        ("SET-ACTIVE-EXPIRE <0|1>", "Whether keys that expired are taken out before somebody uses them."),
        ("SET-DISABLE-DENY-SCRIPTS <0|1>", "Whether scripts may run commands that are not for scripts."),
        ("SET-SKIP-CHECKSUM-VALIDATION <0|1>", "Whether RESTORE takes values whatever their checksum is."),
        ("SLEEP <seconds>", "Stop the server for <seconds>. Decimals allowed."),
        ("STRINGMATCH-TEST", "Compare many strings with many patterns."),
    ];
    help::write(call, "DEBUG", &lines)
}
