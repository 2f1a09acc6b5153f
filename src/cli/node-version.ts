/** The oldest Node.js that package.json allows. */
const OLDEST = [20, 19] as const

const [major = 0, minor = 0] = process.versions.node.split('.').map(Number)

// This module is imported first. An older version cannot load the others and would print a stack trace.
if (major < OLDEST[0] || (major === OLDEST[0] && minor < OLDEST[1])) {
  process.stderr.write(`Node.js ${OLDEST.join('.')} or later is needed; this is ${process.versions.node}.\n`)
  process.exit(1)
}
