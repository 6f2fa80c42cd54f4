// The conformance suite imports fs.globSync, which Node.js 20 lacks and which no server scenario calls.
import * as fs from "node:fs";
import { register } from "node:module";

if (!("globSync" in fs)) {
  const shim = 'export * from "node:fs"; export { default } from "node:fs"; export const globSync = undefined;';
  const hooks = `
    export const resolve = (name, context, next) =>
      name === "fs" && context.parentURL?.includes("/conformance/dist/")
        ? { url: "shim:fs", shortCircuit: true }
        : next(name, context);
    export const load = (url, context, next) =>
      url === "shim:fs" ? { format: "module", shortCircuit: true, source: ${JSON.stringify(shim)} } : next(url, context);
  `;
  register("data:text/javascript," + encodeURIComponent(hooks));
}
