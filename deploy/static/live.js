// What every page that stays fresh shares: it asks again and again, and says so while nobody answers.
// Without it each page would fall silent in its own way, and its reader would take old numbers for new ones.
"use strict";

const Live = (() => {
  const AWAY = "The site does not answer; trying again.";
  const SLOWEST_MS = 5000;
  class Refused extends Error {}
  const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

  // Put a sentence into the bar at the top; nothing takes it away.
  function say(words) {
    const bar = document.getElementById("live-status");
    if (bar.textContent !== words) bar.textContent = words;
  }

  // What the site says of a refusal, if it says anything a person can read.
  async function reason(answer) {
    const body = await answer.json().catch(() => ({}));
    return body.error || AWAY;
  }

  // Ask `url` every `everyMs`; each answer that differs from the last goes to `show(answer)`, until that returns false.
  // The browser sends the ETag along, so an unchanged page costs the site a 304. While a tab is hidden, nothing is asked.
  async function follow(url, show, everyMs = 1000) {
    let known = null;
    let waitMs = everyMs;
    for (;;) {
      if (!document.hidden) {
        try {
          const answer = await fetch(url, { cache: "no-cache", signal: AbortSignal.timeout(10000) });
          if (answer.status >= 500) throw new Refused(await reason(answer));
          const tag = answer.headers.get("ETag");
          if ((tag === null || tag !== known) && (await show(answer)) === false) return say("");
          known = tag;
          waitMs = everyMs;
          say("");
        } catch (failed) {
          say(failed instanceof Refused ? failed.message : AWAY);
          waitMs = Math.min(SLOWEST_MS, waitMs * 1.5);
        }
      }
      await pause(waitMs);
    }
  }

  return { AWAY, follow, reason, say };
})();
