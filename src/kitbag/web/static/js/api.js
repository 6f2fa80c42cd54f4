// Requests to the server, with the token of this start. The token is kept for this tab only, and sent as a header.

const STORAGE_KEY = "kitbag-token";

/** A request that the server answered with a problem, or did not answer. */
export class ApiError extends Error {
  constructor(status, problem, fix = "") {
    super(problem);
    this.status = status;
    this.problem = problem;
    this.fix = fix;
  }
}

/** Takes the token from the URL's fragment, which then disappears from the address bar and the history. */
export function readToken() {
  const found = new URLSearchParams(location.hash.slice(1)).get("token");
  if (found) {
    sessionStorage.setItem(STORAGE_KEY, found);
    history.replaceState(null, "", location.pathname + location.search);
  }
  return sessionStorage.getItem(STORAGE_KEY) ?? "";
}

export function storeToken(token) {
  sessionStorage.setItem(STORAGE_KEY, token);
}

async function request(path, options = {}) {
  const headers = { authorization: `Bearer ${sessionStorage.getItem(STORAGE_KEY) ?? ""}`, ...options.headers };
  let response;
  try {
    response = await fetch(path, { ...options, headers, credentials: "omit", cache: "no-store" });
  } catch {
    throw new ApiError(0, "the server does not answer", "check that `kitbag web` is still running");
  }
  if (response.ok) return response;
  let found = {};
  try {
    found = await response.json();
  } catch {
    // Rejected before any route: the answer is plain text.
  }
  if (response.status === 401) {
    throw new ApiError(401, "this tab's token is not valid", "open the URL that `kitbag web` printed");
  }
  throw new ApiError(response.status, found.problem ?? `the server answered ${response.status}`, found.fix ?? "");
}

export async function getJson(path) {
  return (await request(path)).json();
}

export async function getText(path) {
  return (await request(path)).text();
}

export async function postJson(path, body, signal) {
  const headers = { "content-type": "application/json" };
  return (await request(path, { method: "POST", headers, body: JSON.stringify(body), signal })).json();
}
