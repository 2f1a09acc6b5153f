import { readFile } from 'node:fs/promises'
import path from 'node:path'
import { afterAll, beforeAll, describe, expect, inject, test } from 'vitest'
import { createDatabase, dropDatabase, inDatabase } from '../support/databases'
import { runSteps } from './quick-start'
import { type Example, readExample } from './readme'
import { makeProject, type Neighbourhood, openNeighbourhood, type Project, succeed } from './workspace'

const PATIENCE = { timeout: 240_000 }
const checkout = path.resolve(import.meta.dirname, '../..')
const read = async (file: string): Promise<string> => await readFile(path.join(checkout, file), 'utf8')

const document = await read('docs/recipes.md')
const [shared = '', ...sections] = document.split(/^## /mu)
const recipes = sections
  .map((text): [title: string, recipe: Example] => [text.slice(0, text.indexOf('\n')), readExample(text)])
  .filter(([, { steps }]) => steps.length > 0)
const { files: sharedFiles } = readExample(shared)

let neighbourhood: Neighbourhood
const databases: string[] = []

beforeAll(async () => {
  neighbourhood = await openNeighbourhood()
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
  test.each(recipes)('%s: the recipe runs, and prints what it says', PATIENCE, async (title, recipe) => {
    const project = await makeProject(neighbourhood.installation, title, {
      databaseUrl: await newDatabase(title),
      files: { ...sharedFiles, ...recipe.files },
    })
    await runSteps(project, recipe)
  })

  test('has these recipes', () => {
    expect(recipes.map(([title]) => title)).toEqual([
      'typeorm-transactional',
      'A transaction that runs again',
      'A free slug',
      'Reserved and held names',
      'typeorm-naming-strategies',
      'typeorm-extension',
      'class-validator and class-transformer',
      'Streams of Node.js',
      'tsx',
      'SWC, and Jest with it',
      'Vitest',
      'esbuild',
      'Several bundles',
    ])
  })
})

describe('docs/recipes.md: HTTP requests that arrive twice', () => {
  let project: Project
  const { files } = readExample(sections.find((text) => text.startsWith('HTTP requests')) ?? '')

  beforeAll(async () => {
    const { files: filter } = readExample(sections.find((text) => text.startsWith('NestJS')) ?? '')
    const { 'tsconfig.json': compiler = '', ...common } = sharedFiles
    project = await makeProject(neighbourhood.installation, 'http', {
      fixture: 'http',
      databaseUrl: await newDatabase('http'),
      files: { ...common, ...files, ...filter, 'tsconfig.recipes.json': compiler },
    })
    succeed(await project.run('tsc', ['-p', '.']))
  }, PATIENCE.timeout)

  test.each(['express', 'fastify', 'fastify-http2', 'nest-express', 'nest-fastify'])(
    '%s: of 50 requests at once one pays, and every case has the answer of the page',
    PATIENCE,
    async (server) => {
      expect(succeed(await project.run('node', ['dist/check.js', server])).stdout).toBe('checked\n')
    },
  )

  test('no recipe has more than 1,500 characters without its indentation', () => {
    const lengths = Object.values(files).map((text) => text.replaceAll(/^ +/gmu, '').length)
    expect(lengths).toHaveLength(5)
    expect(Math.max(...lengths)).toBeLessThanOrEqual(1_500)
  })
})

describe('examples/nest', () => {
  test('does what its README.md says: migrations, types, and tests over HTTP', PATIENCE, async () => {
    const databaseUrl = await newDatabase('nest')
    const project = await makeProject(neighbourhood.installation, 'nest', { example: 'nest', databaseUrl })
    const steps = readExample(await read('examples/nest/README.md'))
    expect(steps.steps.map(({ command }) => command.split('\n').filter(Boolean).at(-1))).toEqual([
      'npm run migration:run',
      'npm test',
    ])
    await runSteps(project, steps)
  })

  test('is tested with the versions that its package.json names', async () => {
    const { dependencies, devDependencies } = JSON.parse(await read('examples/nest/package.json')) as Manifest
    const installed = (JSON.parse(await read('test/package/neighbours/package.json')) as Manifest).dependencies
    const own = (JSON.parse(await read('package.json')) as { version: string }).version
    expect({ ...installed, 'typeorm-unique-text': own }).toMatchObject({ ...dependencies, ...devDependencies })
  })
})

interface Manifest {
  readonly dependencies: Readonly<Record<string, string>>
  readonly devDependencies: Readonly<Record<string, string>>
}
