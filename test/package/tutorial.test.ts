import { readFile } from 'node:fs/promises'
import path from 'node:path'
import { afterAll, beforeAll, expect, inject, test } from 'vitest'
import { createDatabase, dropDatabase, inDatabase } from '../support/databases'
import { runSteps } from './quick-start'
import { readExample, unmarkedBlocks } from './readme'
import { makeProject, type Neighbourhood, openBesideOwnPackages, type Project } from './workspace'

const PATIENCE = { timeout: 240_000 }
const DATABASE = `T tutorial ${process.pid}`

let workspace: Neighbourhood
let project: Project
const document = await readFile(path.join(import.meta.dirname, '../../docs/tutorial.md'), 'utf8')
const tutorial = readExample(document)

beforeAll(async () => {
  workspace = await openBesideOwnPackages()
  await createDatabase(inject('serverUrl'), DATABASE)
  const databaseUrl = inDatabase(inject('serverUrl'), DATABASE)
  project = await makeProject(workspace.installation, 'tutorial', { databaseUrl, files: tutorial.files })
}, PATIENCE.timeout)

afterAll(async () => {
  await dropDatabase(inject('serverUrl'), DATABASE)
  await workspace?.remove()
})

test(
  'the steps of docs/tutorial.md print what is below them, and its files have the right types',
  PATIENCE,
  async () => {
    expect(tutorial.steps).toHaveLength(7)
    expect(unmarkedBlocks(document)).toEqual([])
    await runSteps(project, tutorial)
    expect(await project.run('tsc', ['-p', '.', '--noEmit'])).toEqual({ code: 0, stdout: '', stderr: '' })
  },
)
