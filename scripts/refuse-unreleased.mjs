// Before `npm version`: what stands under "Unreleased" would be published under no version.
import { readFile } from 'node:fs/promises'

const changelog = await readFile(new URL('../CHANGELOG.md', import.meta.url), 'utf8')
const unreleased = /^## Unreleased\n(?<entries>.*?)(?=^## |$(?![^]))/msu.exec(changelog)?.groups?.entries ?? ''
if (unreleased.trim() !== '') {
  console.error('CHANGELOG.md: move the lines under "Unreleased" to a heading with the new version and its date.')
  process.exitCode = 1
}
