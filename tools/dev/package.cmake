# Packages, by `cpack` in the build folder: a .deb, whose dependencies dpkg-shlibdeps finds, and a tarball
# that runs from its folder. Configure with the preset portable: others only run on CPUs like this one.
set(CMAKE_SKIP_INSTALL_ALL_DEPENDENCY ON)  # cpack packs what is built, without the tests
set(CPACK_GENERATOR DEB TGZ)
set(CPACK_PACKAGE_NAME ggml-train)
set(CPACK_PACKAGE_CONTACT "the ggml-train authors <ggml-train@localhost>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "trains GPT and ViT models on ggml, alone or over home internet")
set(CPACK_STRIP_FILES ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
if(GT_NATIVE)
    set(CPACK_DEBIAN_PACKAGE_RELEASE native)
    set(CPACK_PACKAGE_FILE_NAME ${CPACK_PACKAGE_NAME}-${PROJECT_VERSION}-native)
endif()
include(CPack)
