/**
 * Completes `dist` after `tsc`:
 *
 * - `text/normalize-url.js` gets normalize-url itself, because that is an ES module only and a normalizer is synchronous.
 * - `esm` gets the same sources as ES modules, file by file, so that a bundler leaves out what nobody uses.
 *
 * Only bundlers read `esm`: package.json offers it under the condition `module`, for `import` and for `require`. Node.js does
 * not know that condition and gets CommonJS for both. So neither a process nor a bundle has a class twice.
 */
import { existsSync } from 'node:fs'
import { readdir, readFile, writeFile } from 'node:fs/promises'
import path from 'node:path'
import { build } from 'esbuild'

const licence = await readFile('node_modules/normalize-url/license', 'utf8')
const common = {
  bundle: true,
  platform: 'node',
  target: 'es2022',
  // Else comments in a bundle name the machine's own folders where node_modules is a link.
  preserveSymlinks: true,
}
const withLicence = { banner: { js: `/*! Holds normalize-url:\n${licence.trim()}\n*/` } }

const file = 'dist/text/normalize-url.js'
await build({ ...common, ...withLicence, entryPoints: [file], outfile: file, allowOverwrite: true, format: 'cjs' })
await writeFile('dist/text/normalize-url.LICENSE.txt', licence)

/** Leaves an import of a file of ours as it is, under the file name that ES modules need. */
const fileByFile = {
  name: 'file by file',
  setup({ onResolve }) {
    onResolve({ filter: /^\./ }, ({ importer, path: specifier, resolveDir }) => {
      if (!importer.endsWith('.ts')) return undefined
      const isFolder = existsSync(path.join(resolveDir, specifier, 'index.ts'))
      return { path: `${specifier}${isFolder ? '/index' : ''}.mjs`, external: true }
    })
  },
}
const modules = {
  ...common,
  plugins: [fileByFile],
  external: ['typeorm', 'pg', '@nestjs/common', '@nestjs/core', 'rxjs'],
  format: 'esm',
  outbase: 'src',
  outdir: 'dist/esm',
  outExtension: { '.js': '.mjs' },
}

// The command line is a program: nobody imports it.
const sources = (await readdir('src', { recursive: true }))
  .filter((source) => source.endsWith('.ts') && !source.startsWith('cli'))
  .map((source) => path.join('src', source))
const holdsLicensed = (source) => source.endsWith('normalize-url.ts')
await build({ ...modules, entryPoints: sources.filter((source) => !holdsLicensed(source)) })
await build({ ...modules, ...withLicence, entryPoints: sources.filter(holdsLicensed) })
