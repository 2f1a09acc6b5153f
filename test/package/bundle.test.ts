import { writeFile } from 'node:fs/promises'
import path from 'node:path'
import { build } from 'esbuild'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { makeProject, type Neighbourhood, openBesideOwnPackages, type Project, succeed } from './workspace'

const PATIENCE = { timeout: 240_000 }

let workspace: Neighbourhood
let project: Project

beforeAll(async () => {
  workspace = await openBesideOwnPackages()
  project = await makeProject(workspace.installation, 'bundles', {})
}, PATIENCE.timeout)

afterAll(async () => {
  await workspace?.remove()
})

const bundle = async (contents: string, options: Parameters<typeof build>[0] = {}) =>
  await build({
    stdin: { contents, resolveDir: project.folder, sourcefile: 'entry.js' },
    bundle: true,
    platform: 'node',
    format: 'esm',
    external: ['typeorm', 'pg'],
    // TypeORM, pg and this package are CommonJS modules.
    banner: { js: "import { createRequire } from 'node:module'; const require = createRequire(import.meta.url)" },
    outfile: path.join(project.folder, 'bundle.mjs'),
    ...options,
  })

const ENTRIES = [
  '',
  '/adopt',
  '/doctor',
  '/errors',
  '/names',
  '/normalizers',
  '/numbers',
  '/once',
  '/stream',
  '/typeorm',
  '/url',
]

// It is needed to remove the last names or numbers. Nothing is imported from it by name.
test.each(['/names', '/numbers'])('a bundle keeps a bare import of typeorm-unique-text%s', async (entry) => {
  const { outputFiles: [file] = [] } = await bundle(`import 'typeorm-unique-text${entry}'`, { write: false })
  expect(file?.text).toMatch(/removals\.set\(/)
})

test('a bundle has each class once, whether its modules import or require the package', async () => {
  await writeFile(
    path.join(project.folder, 'required.cjs'),
    `module.exports = [${ENTRIES.map((entry) => `require('typeorm-unique-text${entry}')`).join(', ')}]`,
  )
  const imports = ENTRIES.map((entry, index) => `import * as i${index} from 'typeorm-unique-text${entry}'`)
  await bundle(
    `${imports.join('\n')}
    import required from './required.cjs'
    const imported = [${ENTRIES.map((_, index) => `i${index}`).join(', ')}]
    const different = required.flatMap((all, index) =>
      Object.keys(all).filter((name) => all[name] !== imported[index][name]))
    const error = new required[0].TextRejectedError({ property: 'url', reason: 'of a test' })
    console.log(JSON.stringify({
      names: required.map((all) => Object.keys(all).length > 0),
      different,
      instances: [error instanceof i0.UniqueTextError, new i10.Url() instanceof required[0].UniqueTextEntity],
    }))`,
  )
  const { stdout } = succeed(await project.run('node', ['bundle.mjs']))
  expect(JSON.parse(stdout)).toEqual({ names: ENTRIES.map(() => true), different: [], instances: [true, true] })
})
