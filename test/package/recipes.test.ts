import { readdir, readFile } from 'node:fs/promises'
import path from 'node:path'
import { afterAll, beforeAll, describe, expect, inject, test } from 'vitest'
import { freePort } from '../support/debian-postgres'
import { createDatabase, dropDatabase, inDatabase } from '../support/databases'
import { runSteps } from './quick-start'
import { readExample, readRecipes } from './readme'
import { makeProject, type Neighbourhood, openNeighbourhood, type Project, succeed } from './workspace'

const PATIENCE = { timeout: 240_000 }
const checkout = path.resolve(import.meta.dirname, '../..')
const read = async (file: string): Promise<string> => await readFile(path.join(checkout, file), 'utf8')

const recipes = readRecipes(await read('docs/recipes.md'))
const setUp = readRecipes(await read('docs/your-project.md'))

let neighbourhood: Neighbourhood
const databases: string[] = []

beforeAll(async () => {
  neighbourhood = await openNeighbourhood('neighbours')
}, PATIENCE.timeout)

afterAll(async () => {
  for (const name of databases) await dropDatabase(inject('serverUrl'), name)
  await neighbourhood?.remove()
}, PATIENCE.timeout)

async function newDatabase(title: string): Promise<string> {
  // typeorm-extension takes the name from the URL as it stands there, percent signs included.
  const name = `recipe_${title}_${process.pid}`.replaceAll(/\W/gu, '_')
  databases.push(name)
  await createDatabase(inject('serverUrl'), name)
  return inDatabase(inject('serverUrl'), name)
}

describe.concurrent('docs/recipes.md', () => {
  test.each(recipes.executed)('%s: the recipe runs, and prints what it says', PATIENCE, async (title, recipe) => {
    const project = await makeProject(neighbourhood.installation, title, {
      databaseUrl: await newDatabase(title),
      files: { ...recipes.shared, ...recipe.files },
    })
    await runSteps(project, recipe)
  })

  test('has these recipes', () => {
    expect(recipes.executed.map(([title]) => title)).toEqual([
      'A transaction that runs again',
      'A free slug',
      'Reserved and held names',
      'Streams of Node.js',
    ])
  })
})

describe.concurrent('docs/your-project.md', () => {
  const migrations = setUp.of('Migrations, also in tests')
  const sections = setUp.executed.filter(([title]) => title !== 'Migrations, also in tests')
  const ofCommonJs = new Set(['Several bundles', 'JavaScript'])
  const projects = sections.flatMap(([title, recipe]) =>
    (ofCommonJs.has(title) ? ['commonjs'] : ['commonjs', 'module']).map((type) => ({ title, type, recipe })),
  )
  const shared = { ...setUp.shared, ...migrations.files }
  let databaseUrl: string
  /** What the command line has generated. */
  const generated: Record<string, string> = {}

  beforeAll(async () => {
    databaseUrl = await newDatabase('your project')
    const files = { ...shared, 'package.json': '{ "type": "module" }' }
    const project = await makeProject(neighbourhood.installation, 'migrations', { databaseUrl, files })
    await runSteps(project, migrations)
    for (const name of await readdir(path.join(project.folder, 'migrations'))) {
      generated[`migrations/${name}`] = await readFile(path.join(project.folder, 'migrations', name), 'utf8')
    }
  }, PATIENCE.timeout)

  test('has these sections', () => {
    expect(sections.map(([title]) => title)).toEqual([
      'CommonJS and ES modules',
      'tsx',
      'SWC, and Jest with it',
      'Vitest',
      'esbuild',
      'Several bundles',
      'JavaScript',
    ])
  })

  test.each(projects)('$title in a project of type $type', PATIENCE, async ({ title, type, recipe }) => {
    const own = { ...recipe.files, 'package.json': JSON.stringify({ type }) }
    const files: Record<string, string> = { ...shared, ...generated, ...own }
    // As the section says.
    const swc = recipe.files['.swcrc']
    if (type === 'module' && swc) files['.swcrc'] = swc.replace('"commonjs"', '"es6"')
    const project = await makeProject(neighbourhood.installation, `${title} ${type}`, { databaseUrl, files })
    await runSteps(project, recipe)
  })
})

// Each case waits ten seconds for work that takes longer than that, so all of them run at once.
describe.concurrent('docs/recipes.md: HTTP requests that arrive twice', () => {
  let project: Project
  const { files } = recipes.of('HTTP requests that arrive twice')

  beforeAll(async () => {
    const { 'tsconfig.json': compiler = '', ...common } = recipes.shared
    project = await makeProject(neighbourhood.installation, 'http', {
      fixture: 'http',
      files: { ...common, ...files, ...recipes.of('NestJS').files, 'tsconfig.recipes.json': compiler },
    })
    succeed(await project.run('tsc', ['-p', '.']))
  }, PATIENCE.timeout)

  test.each(['express', 'fastify', 'fastify-http2', 'nest-express', 'nest-fastify'])(
    '%s: of 50 requests at once one pays, and every case has the answer of the page',
    PATIENCE,
    async (server) => {
      const own = `DATABASE_URL=${await newDatabase(server)}`
      expect(succeed(await project.run('env', [own, 'node', 'dist/check.js', server])).stdout).toBe('checked\n')
    },
  )

  test('no recipe has more than 1,500 characters without its indentation', () => {
    const lengths = Object.values(files).map((text) => text.replaceAll(/^ +/gmu, '').length)
    expect(lengths).toHaveLength(5)
    expect(Math.max(...lengths)).toBeLessThanOrEqual(1_500)
  })
})

describe.concurrent('examples/service', () => {
  test('does what its README.md says: migrations, a running service, an import, tests', PATIENCE, async () => {
    const databaseUrl = await newDatabase('service')
    const project = await makeProject(neighbourhood.installation, 'service', { example: 'service', databaseUrl })
    const example = readExample(await read('examples/service/README.md'))
    const port = await freePort()
    const steps = example.steps.map((step) => ({ ...step, command: `export PORT=${port}\n${step.command}` }))
    expect(steps).toHaveLength(4)
    await runSteps(project, { ...example, steps })
  })

  test('is at most 400 lines of TypeScript', async () => {
    const folder = path.join(checkout, 'examples/service')
    const files = (await readdir(folder, { recursive: true })).filter((file) => file.endsWith('.ts'))
    const texts = await Promise.all(files.map(async (file) => await readFile(path.join(folder, file), 'utf8')))
    expect(texts.join('').split('\n').length).toBeLessThanOrEqual(400)
  })

  test('is tested with the versions that its package.json names, and deployed by its scripts', async () => {
    const manifest = JSON.parse(await read('examples/service/package.json')) as Manifest
    const installed = (JSON.parse(await read('test/package/neighbours/package.json')) as Manifest).dependencies
    const own = (JSON.parse(await read('package.json')) as { version: string }).version
    const { dependencies, devDependencies, scripts } = manifest
    expect({ ...installed, 'typeorm-unique-text': own }).toMatchObject({ ...dependencies, ...devDependencies })
    const deployed = `${await read('examples/service/Dockerfile')}${await read('examples/service/compose.yml')}`
    const called = [...deployed.matchAll(/npm run (?<name>[\w:]+)/gu)].map(({ groups }) => groups?.['name'] ?? '')
    expect(Object.keys(scripts)).toEqual(expect.arrayContaining(called))
    expect(scripts).toMatchObject({ start: expect.stringMatching(/^node dist\/main\.js$/) })
    expect(deployed).toContain('["node", "dist/main.js"]')
  })
})

interface Manifest {
  readonly scripts: Readonly<Record<string, string>>
  readonly dependencies: Readonly<Record<string, string>>
  readonly devDependencies: Readonly<Record<string, string>>
}
