// Style sheets of single views, loaded when the view is first shown.

const loaded = new Map();

/** Resolves when the style sheet applies, or could not be loaded. */
export function loadStyle(path) {
  if (!loaded.has(path)) {
    loaded.set(
      path,
      new Promise((resolve) => {
        const link = document.createElement("link");
        link.rel = "stylesheet";
        link.href = path;
        link.addEventListener("load", resolve);
        link.addEventListener("error", resolve);
        document.head.append(link);
      }),
    );
  }
  return loaded.get(path);
}
