"""What tasks bring about outside of the portal and in its tables, counted: nothing twice.

Close of a month tells finance by mail and a webhook, and makes a plan's file, of which they are
told as well; people ask for files besides. Mails go to the log of the worker that sends them.
"""

from __future__ import annotations

import re
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

PREPARE = """
from budgets.models import User
from budgets.services.alerts.webhooks import create_webhook
from budgets.services.exports.plans import save_export_plan
fin = User.objects.get(username='fin')
create_webhook(User.objects.get(username='admin'), name='books', url={url!r})
save_export_plan(fin, name='books', every='close', dataset='charges', format='csv')
"""
MESSAGE = re.compile(r"Message-ID: <([\w-]+)@gpu-budget-portal>")
OPEN = """
SELECT (SELECT count(*) FROM budgets_delivery WHERE state = 'waiting')
     + (SELECT count(*) FROM budgets_operation WHERE kind = 'export' AND state = 'running')
     + (SELECT count(*) FROM budgets_billingperiod p WHERE p.closed_at IS NOT NULL AND NOT EXISTS
        (SELECT 1 FROM budgets_export e WHERE e.run_key = 'close:' || p.name))
"""
DELIVERIES = """
SELECT channel, state, attempts, id,
       CASE WHEN export_id IS NOT NULL THEN 'export-' || export_id
            WHEN period_id IS NOT NULL THEN
                 'close-' || (SELECT close_number FROM budgets_billingperiod WHERE id = period_id)
            WHEN entry_id IS NOT NULL THEN 'entry-' || entry_id ELSE 'alert-' || alert_id END
FROM budgets_delivery
"""
EXPORTS = """
SELECT e.id, o.state, e.attempt, e.run_key FROM budgets_export e
JOIN budgets_operation o ON o.id = e.operation_id
"""
ONCE = "('export.request', 'period.close')"
ENTRIES = (
    f"SELECT action, subject, count(*) FROM budgets_auditentry WHERE action IN {ONCE} GROUP BY 1, 2"
)
STATEMENTS = """
SELECT account_id, period_id, count(*) FROM budgets_statement WHERE credits_id IS NULL GROUP BY 1, 2
"""


class Effects:
    """A receiver of webhooks, and what the tables and logs say. A context manager."""

    def __init__(self, house: Any) -> None:
        self._house = house
        self._heard: Counter[str] = Counter()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _receiver(self._heard))

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *error: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def prepare(self) -> None:
        """Have the portal tell of closes, and make a file of each."""
        url = f"http://127.0.0.1:{self._server.server_port}/"
        self._house.manage("shell", "-v", "0", "-c", PREPARE.format(url=url))

    def judge(
        self, report: Any, wishes: Sequence[int], *, closed: Sequence[str], within_s: float
    ) -> None:
        """Wait until nothing is under way any more, then count.

        Args:
            report: Gets the counts and what is wrong.
            wishes: Status of each request for a file.
            closed: Months.
            within_s: How long is waited.
        """
        ends = time.monotonic() + within_s
        while (left := self._house.query(OPEN)[0][0]) and time.monotonic() < ends:
            time.sleep(0.5)
        if left:
            report.broken.append(f"{left} files and deliveries are still under way")
        report.broken += self._faults(report, wishes, closed)

    def _faults(self, report: Any, wishes: Sequence[int], closed: Sequence[str]) -> Iterator[str]:
        mails = self._mails()
        deliveries = self._house.query(DELIVERIES)
        exports = self._house.query(EXPORTS)
        entries = self._house.query(ENTRIES)
        report.effects = {
            "files": len(exports),
            "mails": sum(mails.values()),
            "webhooks": sum(self._heard.values()),
            "closes": len(closed),
            "audit entries": len(entries),
        }
        for channel, state, attempts, key, word in deliveries:
            is_mail = channel == "mail"
            heard = mails[f"{word}-{key}"] if is_mail else self._heard[word]
            if state != "sent":
                yield f"{channel} {word} is {state}"
            elif heard == 0 or heard > attempts:
                yield f"{channel} {word} arrived {heard} times in {attempts} attempts"
            elif heard > 1 or attempts > 1:
                report.told_again.append(f"{channel} {word}: {heard} in {attempts} attempts")
        planned = Counter(run for _, _, _, run in exports if run)
        if sorted(planned) != sorted(f"close:{month}" for month in closed):
            yield f"files of closes: {sorted(planned)}; closed were {list(closed)}"
        yield from (f"{run} was made {count} times" for run, count in planned.items() if count > 1)
        asked = sum(not run for _, _, _, run in exports)
        accepted, unknown = wishes.count(202), sum(status in (0, 502, 504) for status in wishes)
        if not accepted <= asked <= accepted + unknown:
            yield f"{asked} files of {accepted} wishes, and {unknown} without an answer"
        for key, state, attempt, _ in exports:
            if state != "done":
                yield f"file {key} is {state}"
            elif attempt > 1:
                report.told_again.append(f"file {key}: {attempt} attempts")
        told = Counter(action for action, _, _ in entries)
        if told["export.request"] != len(exports) or told["period.close"] != len(closed):
            yield f"audit entries {dict(told)} for {len(exports)} files, {len(closed)} closes"
        yield from (f"{a} of {s} stands {n} times in the log" for a, s, n in entries if n > 1)
        for account, period, count in self._house.query(STATEMENTS):
            if count > 1:
                yield f"account {account} has {count} statements of period {period}"

    def _mails(self) -> Counter[str]:
        logs = self._house.disk.glob("tasks-*.log")
        return Counter(
            word for log in logs for word in MESSAGE.findall(log.read_text(errors="replace"))
        )


def _receiver(heard: Counter[str]) -> type[BaseHTTPRequestHandler]:
    lock = threading.Lock()

    class Receiver(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            with lock:
                heard[self.headers["Portal-Delivery"]] += 1
            self.send_response(204)
            self.end_headers()

        def log_message(self, *words: Any) -> None:
            pass

    return Receiver
