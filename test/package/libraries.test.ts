import { readFile } from 'node:fs/promises'
import path from 'node:path'
import { afterAll, beforeAll, describe, expect, inject, test } from 'vitest'
import { createDatabase, dropDatabase, inDatabase } from '../support/databases'
import { runSteps } from './quick-start'
import { readRecipes } from './readme'
import { makeProject, type Neighbourhood, openNeighbourhood, succeed } from './workspace'

const PATIENCE = { timeout: 240_000 }

const recipes = readRecipes(await readFile(path.join(import.meta.dirname, '../../docs/libraries.md'), 'utf8'))

let neighbourhood: Neighbourhood
const databases: string[] = []

beforeAll(async () => {
  neighbourhood = await openNeighbourhood('libraries')
}, PATIENCE.timeout)

afterAll(async () => {
  for (const name of databases) await dropDatabase(inject('serverUrl'), name)
  await neighbourhood?.remove()
}, PATIENCE.timeout)

describe.concurrent('docs/libraries.md', () => {
  test.each(recipes.executed)('%s: the recipe runs, and prints what it says', PATIENCE, async (title, recipe) => {
    // typeorm-extension takes the name from the URL as it stands there, percent signs included.
    const name = `library_${title}_${process.pid}`.replaceAll(/\W/gu, '_')
    databases.push(name)
    await createDatabase(inject('serverUrl'), name)
    const databaseUrl = inDatabase(inject('serverUrl'), name)
    const files = { ...recipes.shared, ...recipe.files }
    const project = await makeProject(neighbourhood.installation, title, { databaseUrl, files })
    await runSteps(project, recipe)
  })

  test('all recipes have the right types', PATIENCE, async () => {
    const { 'tsconfig.json': compiler = '', ...shared } = recipes.shared
    const files: Record<string, string> = { 'tsconfig.json': compiler }
    for (const [index, [, recipe]] of recipes.executed.entries()) {
      for (const [name, text] of Object.entries({ ...shared, ...recipe.files })) files[`${index}/${name}`] = text
    }
    const project = await makeProject(neighbourhood.installation, 'types', { files })
    succeed(await project.run('tsc', ['-p', '.', '--noEmit']))
  })

  test('has these recipes', () => {
    expect(recipes.executed.map(([title]) => title)).toEqual([
      'nestjs-paginate',
      'nestjs-query',
      'nestjs-cls',
      'typeorm-transactional',
      'typeorm-extension',
      'typeorm-naming-strategies',
      'AdminJS',
      'class-validator and class-transformer',
      'Migrations by hand',
    ])
  })
})
