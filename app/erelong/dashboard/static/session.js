/** The API key of this tab and what it may do. The key is never written to a disk and ends with the tab. */

const NAME = "erelong.key";
const BASE = location.pathname;
const ASK_TIME = 200;

/** What the key may do: the answer of `GET v1/me`. */
export let me = null;

const channel = new BroadcastChannel(`erelong ${BASE}`);
const events = new EventTarget();

channel.onmessage = ({ data }) => {
  if (data.ask && key()) channel.postMessage({ key: key() });
  else if (data.key && !key()) events.dispatchEvent(new CustomEvent("offered", { detail: data.key }));
  else if (data.out) forget();
};

export const key = () => sessionStorage.getItem(NAME);

export const can = (scope) => me !== null && me.scopes.includes(scope);

export const know = (found) => {
  me = found;
};

export function keep(value) {
  sessionStorage.setItem(NAME, value);
}

/** Ask other tabs for their key; return it, or null if none has one. @returns {Promise<string | null>} */
export function ask() {
  return new Promise((resolve) => {
    const end = setTimeout(() => resolve(null), ASK_TIME);
    events.addEventListener("offered", ({ detail }) => {
      clearTimeout(end);
      resolve(detail);
    }, { once: true });
    channel.postMessage({ ask: true });
  });
}

/** Forget the key in all tabs. */
export function signOut() {
  channel.postMessage({ out: true });
  forget();
}

/** Call a function when the key is forgotten. */
export const onSignOut = (listener) => events.addEventListener("out", listener);

function forget() {
  sessionStorage.removeItem(NAME);
  me = null;
  events.dispatchEvent(new Event("out"));
}
