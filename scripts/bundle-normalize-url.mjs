// normalize-url is ESM only, and a normalizer is synchronous: so it is bundled into the CommonJS build, with its licence.
import { readFile, writeFile } from 'node:fs/promises'
import { build } from 'esbuild'

const file = 'dist/text/normalize-url.js'
const licence = await readFile('node_modules/normalize-url/license', 'utf8')

await build({
  entryPoints: [file],
  outfile: file,
  allowOverwrite: true,
  bundle: true,
  format: 'cjs',
  platform: 'node',
  target: 'node20.19',
  // Else comments in the bundle name the machine's own folders where node_modules is a link.
  preserveSymlinks: true,
  banner: { js: `/*! Holds normalize-url:\n${licence.trim()}\n*/` },
})
await writeFile('dist/text/normalize-url.LICENSE.txt', licence)
