import { execFileSync, spawnSync } from 'node:child_process'
import { statSync } from 'node:fs'
import path from 'node:path'

/** Runs a tool of this folder, in the folder of the caller: `node scripts/tools/run.mjs textlint README.md`. */
const [tool, ...args] = process.argv.slice(2)
const here = import.meta.dirname
const timeOf = (file) => statSync(path.join(here, file), { throwIfNoEntry: false })?.mtimeMs ?? 0

if (timeOf('node_modules/.package-lock.json') < timeOf('package-lock.json')) {
  const quiet = ['--ignore-scripts', '--no-audit', '--no-fund', '--loglevel=error']
  execFileSync('npm', ['ci', ...quiet], { cwd: here, stdio: 'inherit' })
}
process.exitCode = spawnSync(path.join(here, 'node_modules/.bin', tool), args, { stdio: 'inherit' }).status ?? 1
