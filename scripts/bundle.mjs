/**
 * Makes `dist` of the ES modules and the declarations that `tsc` wrote to the folder `.modules`:
 *
 * - CommonJS: a file for each entry, and files that entries share. Names and lines are kept for stack traces.
 * - for `import`, a file for each entry that exports the CommonJS file. So neither a process nor a bundle has a class twice.
 * - declarations: a file for each entry, and files that entries share.
 *
 * The CommonJS files hold normalize-url, because it is an ES module only and a normalizer is synchronous.
 */
import { cp, readdir, readFile, rm, writeFile } from 'node:fs/promises'
import path from 'node:path'
import { rolldown } from 'rolldown'
import { dts } from 'rolldown-plugin-dts'

const FROM = '.modules'
const TO = 'dist'
const files = await readdir(FROM, { recursive: true })
// Each entry has a file that exports it to ES modules.
const entries = files.filter((file) => file.endsWith('.mjs')).map((file) => file.slice(0, -'.mjs'.length))
const licence = (await readFile('node_modules/normalize-url/license', 'utf8')).trim()
const NORMALIZE_URL = path.join('text', 'normalize-url.js')
const isProgram = (id) => id.includes(`${path.sep}cli${path.sep}`)

/** @param names of files below FROM, without their endings */
async function bundle(names, ending, output, options = {}) {
  const input = Object.fromEntries(names.map((name) => [name, path.resolve(FROM, `${name}${options.from ?? '.js'}`)]))
  const build = await rolldown({
    input,
    platform: 'node',
    external: ['typeorm', 'pg'],
    // Else the output names the machine's own folders where node_modules is a link.
    resolve: { symlinks: false },
    plugins: options.plugins ?? [],
    treeshake: { moduleSideEffects: isProgram },
  })
  await build.write({
    entryFileNames: `[name]${ending}`,
    // Beside an entry in a folder, a file of the folder's name would be found before it.
    chunkFileNames: `shared/[name]${ending}`,
    exports: 'named',
    comments: false,
    postBanner: ({ moduleIds }) =>
      moduleIds.some((id) => id.endsWith(NORMALIZE_URL)) ? `/*! Holds normalize-url:\n${licence}\n*/` : '',
    ...output,
  })
}

// Files of a folder node_modules would not be packed.
await bundle(['text/normalize-url'], '.js', { dir: FROM, format: 'esm' })

// The version of Node.js is examined before any other file is loaded. The benchmark measures the import by itself.
await bundle([...entries, 'cli/node-version', 'cli/import', 'cli/main'], '.js', { dir: TO, format: 'cjs' })

await bundle(
  entries,
  '.ts',
  { dir: TO, format: 'esm', chunkFileNames: 'shared/[name].d.ts', comments: true },
  {
    from: '.d.ts',
    plugins: [dts({ dtsInput: true })],
  },
)

for (const name of entries)
  for (const ending of ['.mjs', '.d.mts']) await cp(path.join(FROM, name + ending), path.join(TO, name + ending))
await writeFile(path.join(TO, 'normalize-url.LICENSE.txt'), `${licence}\n`)
await rm(FROM, { recursive: true })
