// Requests to the viewer's server, and its stream of events.
//
// Owns: `get`, `address`, `Stream`. Must never: draw, or connect to any other server.

export function address(path, query = {}) {
  const given = Object.entries(query).filter(([, value]) => value !== undefined && value !== null);
  return given.length ? `${path}?${new URLSearchParams(given)}` : path;
}

export class Refusal extends Error {
  constructor(message, status) {
    super(message);
    this.status = status;
  }
}

export async function get(path, query, signal) {
  let answer;
  try {
    answer = await fetch(address(path, query), { signal, headers: { accept: "application/json" } });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Refusal("The viewer does not answer. Is `compact view` still running?", 0);
  }
  const value = await answer.json().catch(() =>
    ({ error: `The viewer answered ${answer.status} without a reason.` }));
  if (signal?.aborted) throw new DOMException("left", "AbortError");
  if (!answer.ok) throw new Refusal(value.error ?? `The viewer answered ${answer.status}.`, answer.status);
  return value;
}

// New rows as they arrive; after a lost connection the stream continues behind the last row it had.
export class Stream {
  constructor(onrows, state) {
    this.onrows = onrows;
    this.state = state;
    this.waiting = [];
    this.wait = 500;
    this.last = 0;
  }

  open() {
    this.source = new EventSource(address("/events", { since: this.last || undefined }));
    this.source.onopen = () => {
      this.wait = 500;
      this.state("live");
    };
    this.source.onmessage = (event) => this.take(JSON.parse(event.data));
    this.source.onerror = () => {
      this.source.close();
      this.state("lost");
      this.timer = setTimeout(() => this.open(), this.wait);
      this.wait = Math.min(8000, this.wait * 2);
    };
  }

  take(rows) {
    for (const row of rows) {
      this.last = Math.max(this.last, row.id);
      this.waiting.push(row);
    }
    // Draw once per frame, however many rows arrive; a tab in the background has no frames.
    if (this.due) return;
    this.due = true;
    const hand = () => {
      this.due = false;
      const taken = this.waiting;
      this.waiting = [];
      this.onrows(taken);
    };
    if (document.hidden) setTimeout(hand, 100);
    else requestAnimationFrame(hand);
  }
}

// Runs `work` at most once per `every` milliseconds and never twice at a time; a call in between runs it once more.
export function calmly(work, every) {
  let running = false;
  let again = false;
  return async function run() {
    if (running) {
      again = true;
      return;
    }
    running = true;
    try {
      await work();
    } finally {
      setTimeout(() => {
        running = false;
        if (again) {
          again = false;
          run();
        }
      }, every);
    }
  };
}
