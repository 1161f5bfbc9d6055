// Runs tests of @kubernetes/client-node's repository: modules that export a function each.

import { appendFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

const [seconds, ...names] = process.argv.slice(2);
let fail;
process.on("uncaughtException", (error) => fail(error)); // of a stream, say, that nobody awaits

for (const name of names) {
    let wrong = "";
    let timer;
    const late = new Promise((_, reject) => {
        fail = reject;
        timer = setTimeout(() => reject(new Error(`not done after ${seconds} s`)), seconds * 1000);
    });
    try {
        const test = (await import(pathToFileURL(name).href)).default;
        await Promise.race([test(), late]);
    } catch (error) {
        wrong = `${error.stack ?? error}`;
    } finally {
        clearTimeout(timer);
    }
    appendFileSync(process.env.RESULTS, `${JSON.stringify([name, wrong])}\n`);
}
process.exit();
