import { testInterleavings } from './play-interleavings'

testInterleavings(['READ COMMITTED'])
