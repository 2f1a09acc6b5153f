import { readFile, writeFile } from 'node:fs/promises'
import path from 'node:path'
import { installPackages, loadPlots } from '../install'
import { htmlOf } from './html'
import { markdownOf } from './markdown'
import { aboutOf, readReleases, RELEASES, type Report } from './report'
import { tablesOf } from './tables'

const MAINTAINERS = path.resolve(__dirname, '../../maintainers')
/** What stands between them in maintainers/benchmark.md is generated. */
const FIGURES = /(?<=<!-- figures -->\n).*(?=<!-- end of figures -->)/su

export async function writeDocuments(report: Report, release: string): Promise<void> {
  await installPackages()
  await writeFile(path.join(RELEASES, `${release}.json`), `${JSON.stringify(report, null, 2)}\n`)
  const tables = tablesOf(await readReleases())
  await writeFile(path.join(MAINTAINERS, 'benchmark.html'), htmlOf(report, tables, await loadPlots()))
  const text = await readFile(path.join(MAINTAINERS, 'benchmark.md'), 'utf8')
  await writeFile(
    path.join(MAINTAINERS, 'benchmark.md'),
    text.replace(FIGURES, () => `\n${aboutOf(report)}\n\n${markdownOf(tables)}\n`),
  )
}
